"""What preflight asks, one question a module: each has ``check(config, run) -> list[Problem]``."""
