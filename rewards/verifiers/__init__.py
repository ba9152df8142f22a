"""Verifiers: one module a task, each of which says how good an answer is."""
