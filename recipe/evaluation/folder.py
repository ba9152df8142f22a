"""Output folder of an evaluation: `samples.jsonl`, `metrics.json`, `summary.json`, `run_info.json`, `qa_logs/`."""

import json
import platform
import random
from collections import defaultdict
from collections.abc import Collection, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from data_prep.files import file_hash
from data_prep.json_lines import write_lines
from recipe.evaluation.samples import Problem, Sample, SampleJournal, read_data_sets
from recipe.records.run_directory import write_atomically
from recipe.records.versions import EVALUATION_VERSION, KEY

PACKAGES = ("verl-skillcredit", "verl", "vllm", "transformers", "torch", "openai")
QA_PER_CLASS = 5


class FolderError(ValueError):
    """The folder holds another evaluation, an old one, or none; the message is for the user."""


def changed_settings(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that differ between two evaluations, with both values; nested keys as `group.key`."""
    mine, theirs = flat(one), flat(other)
    keys = [key for key in mine | theirs if mine.get(key) != theirs.get(key)]
    return {key: (mine.get(key), theirs.get(key)) for key in keys}


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Each value of nested settings under its dotted name."""
    by_name: dict[str, Any] = {}
    for key, value in settings.items():
        by_name |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return by_name


class EvaluationFolder:
    """Reader and writer of an evaluation's output folder."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def run_info(self) -> dict[str, Any]:
        """The evaluation's settings; FolderError if the folder holds none, or one of another version."""
        info = self._read("run_info.json")
        if (version := info.get(KEY, 1)) != EVALUATION_VERSION:
            raise FolderError(
                f"{self.path} has version {version} of an evaluation's records; this release reads version "
                f"{EVALUATION_VERSION} only: evaluate again with another --out, or use the release that wrote it"
            )
        return info

    @property
    def metrics(self) -> dict[str, Any]:
        """Data set -> metrics; FolderError if the evaluation is not finished, or of another version."""
        metrics = self._read("metrics.json")
        _ = self.run_info  # refuses another version
        return metrics

    def journal(self) -> SampleJournal:
        return SampleJournal(self.path / "samples.jsonl")

    def problems(self) -> list[Problem]:
        """The evaluated problems, from their data files; FolderError if one is missing or has changed."""
        info = self.run_info
        texts = [f"{name}={path}" for name, path in info["files"].items()]
        for name, path in info["files"].items():
            if not Path(path).is_file() or file_hash(Path(path)) != info["settings"]["data"][name]:
                raise FolderError(
                    f"{path} is missing, or has changed since the evaluation in {self.path}: restore the file"
                )
        return read_data_sets(texts, info["settings"]["limit"])

    def begin(
        self,
        settings: dict[str, Any],
        servers: dict[str, Any],
        files: dict[str, str] | None = None,
        experiment: str | None = None,
    ) -> SampleJournal:
        """The journal of a new evaluation, or of one that resumes with the same settings.

        files: data set -> absolute path of its data file; the path does not count as a setting. experiment: the source
        of the judge settings; None: the defaults.
        FolderError if the folder holds an evaluation with other settings: their samples would be mixed.
        """
        settings = json.loads(json.dumps(settings))
        self.check(settings)
        self.path.mkdir(parents=True, exist_ok=True)
        info = {KEY: EVALUATION_VERSION, "settings": settings, "experiment": experiment, "servers": servers}
        self._write("run_info.json", info | {"files": files or {}, "versions": versions()})
        return self.journal()

    def check(self, settings: dict[str, Any], unknown: Collection[str] = ()) -> None:
        """Raise FolderError if the folder holds an evaluation with other settings; `unknown` ones are not compared."""
        if not (self.path / "run_info.json").exists():
            return
        before = {key: value for key, value in self.run_info["settings"].items() if key not in unknown}
        if differing := changed_settings(before, json.loads(json.dumps(settings))):
            changes = ", ".join(f"{key} ({one} there, {other} now)" for key, (one, other) in differing.items())
            raise FolderError(f"{self.path} holds an evaluation with another {changes}; choose another --out")

    def finish(self, metrics: dict[str, Any], summary: dict[str, Any]) -> None:
        """Write the results; metrics.json is last, and marks the evaluation as finished."""
        self._write("summary.json", summary)
        self._write("metrics.json", metrics)

    def write_qa(self, problems: Iterable[Problem], samples: Iterable[Sample], seed: int) -> None:
        """Write `qa_logs/<data set>.jsonl`: up to QA_PER_CLASS samples per error class with their prompts, to read."""
        prompts = {problem.key: problem.messages for problem in problems}
        classes: dict[tuple[str, str], list[Sample]] = defaultdict(list)
        for sample in samples:
            classes[sample.dataset, sample.error].append(sample)
        chosen: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for (dataset, error), of_class in sorted(classes.items()):
            for sample in random.Random(f"{seed}/{dataset}/{error}").sample(of_class, min(QA_PER_CLASS, len(of_class))):
                line = {"error": error, "id": sample.id, "number": sample.number, "prompt": prompts[dataset, sample.id]}
                line |= {"response": sample.answer.text, "conversation": sample.answer.conversation}
                chosen[dataset].append(line | {"reward": sample.reward})
        for dataset, lines in chosen.items():
            write_lines(self.path / "qa_logs" / f"{dataset}.jsonl", lines)
        counts = {f"{dataset}/{error}": len(of_class) for (dataset, error), of_class in sorted(classes.items())}
        write_atomically(self.path / "qa_logs" / "counts.json", json.dumps(counts, indent=2) + "\n")

    def _read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        if not path.is_file():
            raise FolderError(f"{self.path} has no {name}: it holds no finished evaluation (python -m recipe.evaluate)")
        content: dict[str, Any] = json.loads(path.read_text())
        return content

    def _write(self, name: str, content: dict[str, Any]) -> None:
        write_atomically(self.path / name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect results."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = "not installed"
    return installed
