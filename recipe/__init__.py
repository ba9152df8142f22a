"""Commands for users: composition and orchestration. No other package imports this one."""
