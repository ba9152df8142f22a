"""A page of answers before and after training: for each skill one of each change of its verdict."""

from collections.abc import Iterable, Iterator

from recipe.evaluation.samples import Problem, Sample

CHANGES = {
    (False, True): "wrong before, right after",
    (False, False): "wrong before and after",
    (True, False): "right before, wrong after",
}

ComparedAnswers = tuple[Problem, Sample, Sample]


def answers_page(problems: Iterable[Problem], base: Iterable[Sample], trained: Iterable[Sample]) -> str:
    """Markdown with the first problem of each change in each skill; first samples of problems judged in both."""
    pairs = [*_pairs(problems, base, trained)]
    parts = ["# Answers before and after training"]
    for skill in dict.fromkeys(problem.skill for problem, _, _ in pairs):
        parts.append(f"## {skill}")
        of_skill = [pair for pair in pairs if pair[0].skill == skill]
        for change, title in CHANGES.items():
            changed = [pair for pair in of_skill if (_accepted(pair[1]), _accepted(pair[2])) == change]
            parts.append(f"### {title}: {len(changed)} of {len(of_skill)}")
            parts += _shown(*changed[0]) if changed else []
    return "\n\n".join(parts) + "\n"


def _pairs(problems: Iterable[Problem], base: Iterable[Sample], trained: Iterable[Sample]) -> Iterator[ComparedAnswers]:
    first = [
        {sample.key[:2]: sample for sample in samples if sample.number == 0 and sample.judged}
        for samples in (base, trained)
    ]
    for problem in problems:
        if all(problem.key in samples for samples in first):
            yield problem, first[0][problem.key], first[1][problem.key]


def _accepted(sample: Sample) -> bool:
    return sample.reward is not None and sample.reward["acc"] > 0


def _shown(problem: Problem, base: Sample, trained: Sample) -> list[str]:
    texts = {"Question": problem.messages[-1]["content"], "Before": base.answer.text, "After": trained.answer.text}
    return [f"{name}:\n\n{_block(text)}" for name, text in texts.items()]


def _block(text: str) -> str:
    """A code block whose fence the text does not contain."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"
