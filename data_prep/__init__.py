"""Makes the parquet files that verl reads: one module a source."""
