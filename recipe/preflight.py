"""Preflight: ``python -m recipe.preflight experiment=NAME key=value ...`` tells in seconds what would fail in an hour."""
from dataclasses import dataclass
from omegaconf import DictConfig
from recipe.records.run_directory import RunDirectory
@dataclass(frozen=True)
class Problem:
    what: str
    def __str__(self): return self.what
def examine(config, run): return []
def compose_or_explain(argv): pass
