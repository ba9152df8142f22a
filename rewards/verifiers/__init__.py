"""Verifiers: one module per task, each of which judges answers."""
