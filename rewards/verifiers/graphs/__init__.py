"""Verifiers of graph tasks: six NP-hard ones and four that are polynomial, one file a task."""
