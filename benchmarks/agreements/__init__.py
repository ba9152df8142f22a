"""Parts of benchmarks/agreement.py: its programs, the plain harness, and the comparison of verdicts."""
