"""Launchers (bash) and maintenance tools (Python) of the repository; not installed."""
