"""Samples of runs for a page: of each step its share of the limit, split at the steps that have credit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from recipe.pages.page_templates import shortened
from recipe.pages.run_files import number
from recipe.records.experiment_page import pieces
from recipe.records.run_directory import RunDirectory, row_of
from recipe.runtime.visible import visible
from rewards.counterfactual.replayer import MOST, MOST_TESTS, Extent
from rewards.sample_credit import PREFIX, ReplayCounts

SAMPLES = 10_000
"""Samples on a page, of all its runs: their text is about 10 MB, which a browser still opens within seconds."""
SIZE = 40_000_000
"""Of samples on a page, in bytes as recorded, prompts and all; where they would be more, every step has fewer."""
LONGEST = 20_000
"""Characters of one text."""


@dataclass
class Samples:
    """rows: samples as `_row` makes them; texts: what they refer to by number, each once; left_out: samples that are
    recorded and not on the page."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    left_out: int = 0
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: Any) -> int:
        """The text's place in `texts`; prompts and tests repeat over the samples of a group."""
        shown = visible(shortened(str(text), LONGEST))
        if shown not in self._numbers:
            self._numbers[shown] = len(self.texts)
            self.texts.append(shown)
        return self._numbers[shown]

    def add(self, run: int, step: int, sample: Mapping[str, Any]) -> None:
        """Add a sample of the run with this number."""
        self.rows.append(_row(run, step, sample, self) | {"pieces": _pieces(sample)})


def read_samples(runs: Sequence[RunDirectory], limit: int = SAMPLES) -> Samples:
    """The samples in ``generations/`` of the runs, at most `limit`: of every step the first ones, as many of each.

    Lines that a crash cut off, and lines that are no sample, are skipped.
    """
    files = [(place, path) for place, run in enumerate(runs) for path in _files(run)]
    counts = [_lines(path) for _, path in files]
    taken = shares(counts, limit)
    lengths = [path.stat().st_size / max(count, 1) for (_, path), count in zip(files, counts, strict=True)]
    size = sum(length * share for length, share in zip(lengths, taken, strict=True))
    if size > SIZE:
        taken = shares(counts, int(sum(taken) * SIZE / size))
    samples = Samples()
    for (run, path), count, share in zip(files, counts, taken, strict=True):
        samples.left_out += count - share
        for sample in islice(_samples(path), share):
            samples.add(run, int(path.stem.rpartition("_")[2]), sample)
    return samples


def shares(counts: Sequence[int], limit: int) -> list[int]:
    """How many of each step's samples a page holds: all of small steps, as many of each larger one."""
    taken, left = [0] * len(counts), limit
    order = sorted(range(len(counts)), key=lambda index: (counts[index], -index))
    for done, index in enumerate(order):
        taken[index] = min(counts[index], left // (len(counts) - done))
        left -= taken[index]
    return taken


def _files(run: RunDirectory) -> list[Path]:
    files = (run.path / "generations").glob("train_*.jsonl")
    return sorted(path for path in files if path.stem.removeprefix("train_").isdecimal())


def _lines(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def _samples(path: Path) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8", errors="replace") as file:
        for row in map(row_of, file):
            if isinstance(row.get("response"), str):
                yield row


def _row(run: int, step: int, sample: Mapping[str, Any], texts: Samples) -> dict[str, Any]:
    verdict = "masked" if sample.get("masked") else "right" if sample.get("acc", sample.get("score")) == 1 else "wrong"
    row = {
        "run": run,
        "step": step,
        "skill": visible(str(sample.get("skill", "-"))),
        "verdict": verdict,
        "error": visible(str(sample.get("error", "none"))),
        "guard": visible(str(sample.get("guard", "none"))),
        "score": number(sample.get("score")),
        "passed": number(sample.get("pass_ratio")),
        "prompt": texts.number(sample.get("prompt", "")),
        "tests": texts.number(sample.get("ground_truth") or ""),
    }
    cause = " ".join(str(sample.get(key) or "") for key in ("credit_cause", "credit_reason")).strip()
    keys = {count.name: PREFIX + count.name for count in fields(ReplayCounts)}
    counts = {name: sample[key] for name, key in keys.items() if number(sample.get(key))}
    whole = sample.get(f"{PREFIX}whole")
    unrun = any(number(sample.get(f"{PREFIX}{name}")) for name in ("unreached", "unexecuted"))
    if isinstance(whole, list) and whole and not unrun:  # else some steps have a credit without a replay
        row["whole"] = [number(each) for each in whole]
    if replays := _replays(sample, texts):
        row["replays"] = replays
    return row | ({"cause": visible(shortened(cause, 500))} if cause else {}) | ({"counts": counts} if counts else {})


def _replays(sample: Mapping[str, Any], texts: Samples) -> list[dict[str, Any]]:
    """What a page shows of each replay (`rewards.counterfactual.replayer.Replay`); at: the place of its step among the
    answer's steps, -1 for none."""
    spans, found = sample.get("credit_spans"), sample.get("credit_replayed")
    if not (isinstance(spans, list) and isinstance(found, list)):
        return []
    shown = [index for index, span in enumerate(spans) if isinstance(span, list) and span[0:1] != span[1:2]]
    places = {index: place for place, index in enumerate(shown)} | {-1: -1}
    return [
        {
            "change": one["change"],
            "at": places[one["step"]],
            "without": texts.number(one.get("without", "")),
            "instead": texts.number(one.get("instead", "")),
            "score": number(one.get("score")),
            "tests": visible(str(one.get("tests", ""))[:MOST_TESTS]),
            "cause": visible(str(one.get("cause", ""))[:100]),
        }
        for one in found[:MOST]
        if isinstance(one, dict)
        and one.get("change") in get_args(Extent)
        and type(one.get("step")) is int
        and one["step"] in places
    ]


def _pieces(sample: Mapping[str, Any]) -> list[list[Any]]:
    """The response as [text] outside steps, and [text, credit, parts in each test] for each step."""
    response = sample["response"]
    spans, values = sample.get("credit_spans"), sample.get("credit_values")
    tests = sample.get("credit_tests") or []
    if not _fits(spans, values, len(response)) or not _has_each(tests, len(spans or [])):
        return [[visible(shortened(response, LONGEST))]]
    known = [number(value) for value in values or []]
    parts = [[number(part) or 0.0 for part in test] for test in tests]
    return [
        [text] if piece.colour == "transparent" else [text, piece.credit, list(piece.tests)]
        for piece in pieces(response, spans or [], known, parts)
        for text in [visible(shortened(piece.text, LONGEST))]
    ]


def _fits(spans: Any, values: Any, length: int) -> bool:
    """Whether these are spans in order within a text of this length, with a value for each."""
    if not (isinstance(spans, list) and isinstance(values, list) and len(spans) == len(values)):
        return False
    if not all(isinstance(span, list) and len(span) == 2 and all(type(end) is int for end in span) for span in spans):
        return False
    ends = [end for span in spans for end in span]
    return ends == sorted(ends) and (not ends or (ends[0] >= 0 and ends[-1] <= length))


def _has_each(tests: Any, steps: int) -> bool:
    """Whether there are parts in tests for each of so many steps, or for none."""
    return isinstance(tests, list) and len(tests) in (0, steps) and all(isinstance(test, list) for test in tests)
