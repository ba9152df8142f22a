"""Duplicates and leaks: which tasks are alike, what was found, the audit."""
