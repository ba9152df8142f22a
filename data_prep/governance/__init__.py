"""Governance: similarity of tasks, duplicates and leaks, and the audit."""
