"""Preparation of the parquet files that verl reads: one module per source."""
