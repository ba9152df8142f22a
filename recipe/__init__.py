"""Commands: what a user runs. Composition and orchestration; nothing below imports this package."""
