"""Keep of a study's finished runs what its tables are made of, small enough for git, and take it up again.

    python -m recipe.keep FROM TO

Copies configuration, report, and the numbers of every step from the runs in FROM that came to their end and are not in
TO. ``scripts/evidence_a.sh`` keeps its runs in ``docs/evidence_a/runs`` and begins with what is there, so a study that
takes longer than one machine lives goes on elsewhere, and a reader can make its tables again.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

from recipe.records.arms import finished_runs
from recipe.records.run_directory import RunDirectory, write_atomically

# Families of metrics that no table reads; they are most of a row.
PASSED_OVER = (
    "global_seqlen", "num_turns", "perf", "prompt_length", "response", "response_length_non_aborted", "rollout_corr",
    "timing_per_token_ms", "training", "val-aux", "val-core",
)  # fmt: skip
EVENTS = ("start", "end")
DIGITS = 6


def keep(run: RunDirectory, folder: Path) -> RunDirectory:
    """Write what tables read of a run to ``folder/<its name>``; paths below the working directory become relative."""
    kept = RunDirectory(folder / run.path.name)
    kept.path.mkdir(parents=True, exist_ok=True)  # what a killed call left is written again
    home = f"{Path(os.environ.get('SKILLCREDIT_HOME', '.')).absolute()}/"
    rows = [_selected(row) for row in run.metrics()]
    events = [event for event in run.events() if event["event"] in EVENTS]
    pictures = re.compile(r"^!\[.*\n+", re.MULTILINE)
    texts = {
        "config.yaml": (run.path / "config.yaml").read_text(encoding="utf-8"),
        "EXPERIMENT.md": pictures.sub("", (run.path / "EXPERIMENT.md").read_text(encoding="utf-8")),
        "metrics.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        # Last: a run whose events are there is whole.
        "events.jsonl": "".join(json.dumps(event) + "\n" for event in events),
    }
    for name, text in texts.items():
        write_atomically(kept.path / name, text.replace(home, ""))
    return kept


def _selected(row: dict[str, float]) -> dict[str, float]:
    kept = {key: value for key, value in row.items() if key.partition("/")[0] not in PASSED_OVER}
    return {key: value if key in ("step", "time") else float(f"{value:.{DIGITS}g}") for key, value in kept.items()}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="recipe.keep", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("source", type=Path, help="a folder of run directories")
    parser.add_argument("target", type=Path, help="the folder that keeps them")
    options = parser.parse_args(arguments)
    known = {run.path.name for run in finished_runs(options.target)}
    new = [run for run in finished_runs(options.source) if run.path.name not in known]
    for run in new:
        keep(run, options.target)
    print(f"{len(new)} runs kept in {options.target}, which had {len(known)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
