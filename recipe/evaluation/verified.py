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
class JudgedSamples:
    """Judge settings of evaluations, and the experiment that the settings come from."""

    evaluations: list[str]
    experiment: str | None
    judge: dict[str, Any]

    def write(self, out: Path) -> None:
        """Write `run_info.json` to the folder of a data set made from the samples."""
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / "run_info.json", json.dumps(vars(self), indent=2) + "\n")

    def options(self, others: Sequence[str]) -> list[str]:
        """These options of recipe.evaluate, preceded by options that set the same judge settings.

        Options that already name an experiment are returned as they are.
        """
        if any(option.partition("=")[0] == "--experiment" for option in others):
            return list(others)
        settings = [f"{key}={json.dumps(value)}" for key, value in self.judge.items()]
        named = ["--experiment", self.experiment] if self.experiment else []
        return [*named, *(["--judge", *settings] if settings else []), *others]


def read_judged(folders: Sequence[Path]) -> JudgedSamples:
    """Judge settings of these evaluations; FolderError if they differ, or a folder holds no evaluation."""
    infos = [EvaluationFolder(folder).run_info for folder in folders]
    judges = [info["settings"]["judge"] for info in infos]
    for folder, judge in zip(folders, judges, strict=True):
        if differing := changed_settings(judges[0], judge):
            differences = ", ".join(f"{key} ({one} and {other})" for key, (one, other) in differing.items())
            raise FolderError(
                f"{folders[0]} and {folder} judged with different {differences}: evaluate with the same settings"
            )
    experiments = {info["experiment"] for info in infos}
    experiment = experiments.pop() if len(experiments) == 1 else None  # None for several with the same judge settings
    return JudgedSamples([str(folder) for folder in folders], experiment, judges[0])


def read_verified(folders: Iterable[Path]) -> tuple[Solved, int]:
    """The distinct judged samples of all problems that may be trained on, and the number of problems that may not.
    Truncated answers are left out.

    Raises:
        FolderError: a folder holds no evaluation, or there is no sample that may be trained on.
    """
    solved: Solved = {}
    reserved: set[tuple[str, str]] = set()
    for folder in map(EvaluationFolder, folders):
        problems = {problem.key: problem for problem in folder.problems()}
        for sample in folder.journal().of(problems):
            problem = problems[sample.dataset, sample.id]
            if not may_train(problem.id, problem.role):
                reserved.add(problem.key)
            elif sample.judged and sample.answer.finish == "stop":
                solved.setdefault(problem.key, (problem, []))[1].append(sample)
    if not solved:
        raise FolderError(
            f"no sample to train on: {len(reserved)} problems of these evaluations may not be trained on "
            "(their role is not train); evaluate the model on a training file"
        )
    return {key: (problem, distinct(samples)) for key, (problem, samples) in solved.items()}, len(reserved)


def distinct(samples: Iterable[Sample]) -> list[Sample]:
    """The first of each set of samples whose answers differ only in layout, comments and identifiers."""
    first: dict[tuple[str, ...], Sample] = {}
    for sample in samples:
        first.setdefault(tuple(solution_tokens(sample.answer.text)), sample)
    return list(first.values())


def demonstrations(solved: Solved, per_problem: int) -> list[Demonstration]:
    """Up to `per_problem` accepted answers to each problem, as supervised examples."""
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
class PreferencePair:
    """Two answers to one problem; the pass ratio of the chosen one is higher by `margin`."""

    problem: Problem
    chosen: Sample
    rejected: Sample
    margin: float

    @property
    def surplus(self) -> int:
        """Tokens by which the chosen answer is longer."""
        return self.chosen.answer.tokens - self.rejected.answer.tokens


def pairs(solved: Solved, *, min_margin: float, per_problem: int, seed: int = 0) -> list[PreferencePair]:
    """Preference pairs with a minimum margin in pass ratio, up to `per_problem` per problem, balanced in length.

    If the longer answer is always preferred, training teaches length. So pairs are selected such that the length
    differences cancel: each problem, in an order shuffled by seed, gives the pairs that bring the sum nearest to zero.
    """
    problems = list(solved.values())
    random.Random(seed).shuffle(problems)
    drawn: list[PreferencePair] = []
    surplus = 0
    for problem, samples in problems:
        candidates = [pair for pair in _ordered_pairs(problem, samples) if pair.margin >= min_margin]
        for _ in range(min(per_problem, len(candidates))):
            best = min(candidates, key=lambda pair: (abs(surplus + pair.surplus), -pair.margin))
            candidates.remove(best)
            surplus += best.surplus
            drawn.append(best)
    return drawn


def _ordered_pairs(problem: Problem, samples: Sequence[Sample]) -> list[PreferencePair]:
    ratios = [(sample, sample.reward["pass_ratio"]) for sample in samples if sample.reward]
    return [
        PreferencePair(problem, one, other, ratio - lower)
        for (one, ratio), (other, lower) in product(ratios, repeat=2)
        if ratio > lower
    ]
