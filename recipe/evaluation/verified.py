"""Training data from the verified samples of evaluations: demonstrations (rejection sampling) and preference pairs."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from data_prep.governance.likeness import solution_tokens
from data_prep.schema import Demonstration, ExtraInfo, Message
from data_prep.splits import may_train
from recipe.evaluation.folder import EvaluationFolder, FolderError, changed_settings
from recipe.evaluation.samples import Problem, Sample
from recipe.records.run_directory import write_atomically

Solved = dict[tuple[str, str], tuple[Problem, list[Sample]]]


@dataclass(frozen=True)
class Judged:
    """How the samples of evaluations were judged: the settings, and the experiment that they were taken from."""

    evaluations: list[str]
    experiment: str | None
    judge: dict[str, Any]

    def write(self, out: Path) -> None:
        """Leaves `run_info.json` in a folder of data made of the samples."""
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / "run_info.json", json.dumps(vars(self), indent=2) + "\n")

    def options(self, others: Sequence[str]) -> list[str]:
        """These options of recipe.evaluate, after those that make it judge as the samples were judged.

        Options that name an experiment themselves stay as they are.
        """
        if any(word.partition("=")[0] == "--experiment" for word in others):
            return list(others)
        settings = [f"{key}={json.dumps(value)}" for key, value in self.judge.items()]
        named = ["--experiment", self.experiment] if self.experiment else []
        return [*named, *(["--judge", *settings] if settings else []), *others]


def read_judged(folders: Sequence[Path]) -> Judged:
    """How these evaluations judged; FolderError where two did not do it alike, or one is no evaluation."""
    infos = [EvaluationFolder(folder).run_info for folder in folders]
    found = [info["settings"].get("judge", {}) for info in infos]
    for folder, judge in zip(folders, found, strict=True):
        if differing := changed_settings(found[0], judge):
            told = ", ".join(f"{key} ({one} and {other})" for key, (one, other) in differing.items())
            raise FolderError(f"{folders[0]} and {folder} judged with different {told}: evaluate them alike")
    experiments = {info.get("experiment") for info in infos}
    experiment = experiments.pop() if len(experiments) == 1 else None  # several that judge alike
    return Judged([str(folder) for folder in folders], experiment, found[0])


def read_verified(folders: Iterable[Path]) -> tuple[Solved, int]:
    """The judged samples, each text of a problem once, of all problems that may be trained on; and how many problems
    may not. Cut answers are left out.

    Raises:
        FolderError: a folder is no evaluation, or none of its problems may be trained on.
    """
    found: Solved = {}
    reserved: set[tuple[str, str]] = set()
    for folder in map(EvaluationFolder, folders):
        problems = {problem.key: problem for problem in folder.problems()}
        for sample in folder.journal().of(problems):
            problem = problems[sample.dataset, sample.id]
            if not may_train(problem.id, problem.role):
                reserved.add(problem.key)
            elif sample.judged and sample.answer.finish == "stop":
                found.setdefault(problem.key, (problem, []))[1].append(sample)
    if not found:
        raise FolderError(
            f"no sample to train on: {len(reserved)} problems of these evaluations may not be trained on "
            "(their role is not train); evaluate the model on a training file"
        )
    return {key: (problem, distinct(samples)) for key, (problem, samples) in found.items()}, len(reserved)


def distinct(samples: Iterable[Sample]) -> list[Sample]:
    """The first of those whose answers are the same but for layout, comments and chosen names."""
    first: dict[tuple[str, ...], Sample] = {}
    for sample in samples:
        first.setdefault(tuple(solution_tokens(sample.answer.text)), sample)
    return list(first.values())


def demonstrations(solved: Solved, per_problem: int) -> list[Demonstration]:
    """Up to so many accepted answers to each problem, as supervised examples."""
    made = []
    for problem, samples in solved.values():
        accepted = [sample for sample in samples if sample.reward and sample.reward["acc"] == 1.0]
        for sample in accepted[:per_problem]:
            messages = [Message.model_validate(message) for message in problem.messages]
            messages.append(Message(role="assistant", content=sample.answer.text))
            extra = ExtraInfo(split="verified", index=sample.number, id=problem.id)
            made.append(Demonstration(messages=messages, skill=problem.skill, correct=True, extra_info=extra))
    return made


@dataclass(frozen=True)
class Pair:
    """Two answers to one problem, of which the first is better by `margin` of the pass ratio."""

    problem: Problem
    chosen: Sample
    rejected: Sample
    margin: float

    @property
    def surplus(self) -> int:
        """Tokens by which the chosen answer is longer."""
        return self.chosen.answer.tokens - self.rejected.answer.tokens


def pairs(solved: Solved, *, min_margin: float, per_problem: int, seed: int = 0) -> list[Pair]:
    """Preference pairs with a margin of the pass ratio, up to so many of each problem, balanced in length.

    A preference that always goes with the longer answer teaches length. So the pairs of all problems are drawn such
    that the surpluses cancel: each problem, in an order by seed, gives those that bring the sum nearest to zero.
    """
    problems = list(solved.values())
    random.Random(seed).shuffle(problems)
    drawn: list[Pair] = []
    surplus = 0
    for problem, samples in problems:
        candidates = [pair for pair in _ordered_pairs(problem, samples) if pair.margin >= min_margin]
        for _ in range(min(per_problem, len(candidates))):
            best = min(candidates, key=lambda pair: (abs(surplus + pair.surplus), -pair.margin))
            candidates.remove(best)
            surplus += best.surplus
            drawn.append(best)
    return drawn


def _ordered_pairs(problem: Problem, samples: Sequence[Sample]) -> list[Pair]:
    ratios = [(sample, sample.reward["pass_ratio"]) for sample in samples if sample.reward]
    return [
        Pair(problem, one, other, ratio - lower)
        for (one, ratio), (other, lower) in product(ratios, repeat=2)
        if ratio > lower
    ]
