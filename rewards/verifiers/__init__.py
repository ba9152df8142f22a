"""Verifiers: modules of tasks, each of which judges answers."""
