"""Pack a study's finished runs into one file small enough for git, and continue the study from it elsewhere.

    python -m recipe.keep FOLDER RUNS.jsonl.xz   add the finished runs in FOLDER that the file lacks (--runs: of these)
    python -m recipe.keep RUNS.jsonl.xz FOLDER   write a run directory for each run of the file that FOLDER lacks or
                                                 that did not finish there

The file has everything that tables need: settings, report, start and end, and the metrics of every step.
``recipe.report`` reads it like a folder of runs, and unpacked runs count as finished. The launchers do both with
``KEPT=RUNS.jsonl.xz`` (``scripts/evidence_a.sh``).
"""

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from recipe.evaluation import general
from recipe.records import kept_runs
from recipe.records.arms import finished_runs
from recipe.records.kept_runs import KeptRun, is_file
from recipe.records.run_directory import STEP_TIME, RunDirectory
from recipe.records.versions import RecordsError, check_version
from recipe.runtime.console import program

# Metrics that no table of a study reads; they make up most of a row. Some repeat others: `actor/loss` is pg_loss and
# penalties. Of the times, tables read `STEP_TIME` alone.
LEFT_OUT = (
    "actor/grad_norm", "actor/loss", "actor/lr", "actor/perf", "actor/pg_loss", "actor/ppo_kl",
    "actor/projection/displacement_norm", "actor/projection/gradient_norm", "actor/projection/module_cosine",
    "actor/projection/pair_cosine",
    "credit/abs_mean", "credit/advantage_shift", "credit/busy_seconds", "credit/cache_hit_share", "credit/entropy",
    "credit/held_share", "credit/mean", "credit/replay_seconds", "credit/shared_share", "credit/token_share",
    "credit/unparsable_share", "credit/valid_share",
    "critic/advantages", "critic/returns", "critic/rewards", "critic/score", "global_seqlen", "num_turns", "perf",
    "prompt_length", "response", "response_length/max", "response_length/min", "response_length_non_aborted",
    "reward/busy_seconds", "reward/error", "reward/feasible", "reward/format", "reward/judge_seconds",
    "reward/pass_ratio", "reward/quality", "reward/repeat", "reward/score", "rollout_corr", "time",
    "timing_per_token_ms", "timing_s", "training", "val-aux", "val-core",
)  # fmt: skip
# Measured quantities whose last digits are noise, and most of a file's bytes.
COARSE = (
    "actor/entropy", "actor/projection/cosine", "actor/projection/multiplier", "actor/projection/predicted_change",
    "actor/projection/split_half_cosine", "response_length/mean", "reward/sandbox_seconds", STEP_TIME,
)  # fmt: skip
EVENTS = ("start", "end", "validation_shared", general.EVENT)
DIGITS, COARSE_DIGITS = 6, 3


def kept(run: RunDirectory) -> KeptRun:
    """The parts of a finished run that tables read; paths below the working directory become relative.

    Raises:
        RecordsError: a later release wrote the run.
    """
    config, version = run.recorded_config()
    check_version(version, run.path)
    report = (run.path / "EXPERIMENT.md").read_text(encoding="utf-8")
    return KeptRun(
        run.path,
        version,
        _relative(OmegaConf.to_container(config)),
        _relative([event for event in run.events() if event["event"] in EVENTS]),
        [_selected(row) for row in run.metrics()],
        _relative(re.sub(r"^!\[.*\n+", "", report, flags=re.MULTILINE)),
    )


def pack(folder: Path, file: Path, wanted: Collection[str] = ()) -> str:
    """Add the finished runs that the file lacks; returns a summary. wanted: their names; none: all in the folder."""
    known = kept_runs.read(file) if file.exists() else []
    known = [run for run in known if not _was_measured_since(run, folder)]
    names = {run.path.name for run in known}
    runs = [run for run in finished_runs(folder) if not wanted or run.path.name in wanted]
    new = [kept(run) for run in runs if run.path.name not in names]
    if new:
        kept_runs.write(file, [*known, *new])
    return f"{len(new)} runs kept in {file}, which had {len(known)}"


def _was_measured_since(run: KeptRun, folder: Path) -> bool:
    """Whether the folder's run has a measurement of text (`recipe.report perplexity`) that the kept one lacks."""
    here = RunDirectory(folder / run.path.name)
    return here.finished and general.general_loss(here) not in (None, general.general_loss(run))


def unpack(file: Path, folder: Path) -> str:
    """Write a run directory for each run of the file that has none or an incomplete one; returns a summary."""
    runs = kept_runs.read(file)
    missing = [run for run in runs if not RunDirectory(folder / run.path.name).finished]
    for run in missing:
        # An incomplete run's checkpoints and logs are of another training.
        shutil.rmtree(folder / run.path.name, ignore_errors=True)
        run.unpack(folder)
    return f"{len(missing)} of {len(runs)} runs of {file} written to {folder}"


def _relative(value: Any) -> Any:
    home = f"{Path(os.environ.get('SKILLCREDIT_HOME', '.')).absolute()}/"
    return json.loads(json.dumps(value, ensure_ascii=False).replace(home, ""))


def _selected(row: dict[str, float]) -> dict[str, float]:
    """The kept metrics of a step, rounded to six or three digits."""
    numbers = {key: value for key, value in row.items() if not _is_among(key, LEFT_OUT) or key == STEP_TIME}
    rounded = {key: float(f"{value:.{_digits(key)}g}") for key, value in numbers.items()}
    return rounded | {"step": row["step"]}


def _digits(metric: str) -> int:
    return COARSE_DIGITS if _is_among(metric, COARSE) else DIGITS


def _is_among(metric: str, groups: Collection[str]) -> bool:
    """Whether the metric is one of the groups or within one."""
    return any(metric == group or metric.startswith(f"{group}/") for group in groups)


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=program("keep"), description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="a folder of run directories, or the file")
    parser.add_argument("target", type=Path, help="the file, or a folder")
    parser.add_argument("--runs", nargs="+", default=[], metavar="NAME", help="of a folder: keep these runs only")
    options = parser.parse_args(arguments)
    source, target = options.source, options.target
    try:
        if is_file(source) == is_file(target):
            raise RecordsError(
                f"{source} and {target}: one must be a file *{kept_runs.SUFFIX}, the other a folder of runs. "
                "Pack runs that are kept in a folder (version 1) into a file first: "
                f"python -m recipe.keep FOLDER FOLDER{kept_runs.SUFFIX}"
            )
        print(pack(source, target, options.runs) if is_file(target) else unpack(source, target))
    except (RecordsError, OSError) as error:
        print(f"recipe.keep: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
