"""Verifiers of graph tasks: six NP-hard ones and four polynomial ones, one file per task."""
