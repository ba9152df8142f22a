"""Commands for users: composition and orchestration. Only examples, scripts and benchmarks import it."""
