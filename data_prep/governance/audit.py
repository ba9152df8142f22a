"""Findings of governance (duplicates within a role, leaks across roles), and their audit as Markdown.

Tasks are compared in the order test, dev, train, so that of two similar tasks the training task is dropped. Test tasks
are reported but never dropped: a published benchmark is not ours to change.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from data_prep.governance.likeness import Likeness, likeness, prompt_tokens, solution_tokens
from data_prep.tasks import Task, TaskPart

THRESHOLD = 0.8
_RANKS = {"test": 0, "dev": 1, "train": 2}

# Short programs are similar by chance: `return a + b` solves many problems.
_MINIMUM_SOLUTION_TOKENS = 30


@dataclass(frozen=True)
class AuditFinding:
    """Task number `task` has a prompt or solution similar to that of the kept task number `other`.

    similarity: 1.0 for the same normal form, else the Jaccard similarity of shingles.
    """

    task: int
    other: int
    part: TaskPart
    exact: bool
    similarity: float
    leak: bool
    dropped: bool

    @property
    def kind(self) -> str:
        """The kind of finding in three words, such as exact prompt duplicate or near solution leak."""
        degree = "exact" if self.exact else "near"
        return f"{degree} {self.part} {'leak' if self.leak else 'duplicate'}"


def find(tasks: Sequence[Task], threshold: float = THRESHOLD) -> list[AuditFinding]:
    """The closest match of each task's prompt and solution, if any: at most two findings per task, in task order.

    Tasks outside role test are dropped if their prompt is similar to a kept one's, or their solution to that of a kept
    task of another role. Similar solutions within a role are only reported.
    """
    parts: dict[TaskPart, Likeness] = {
        "prompt": likeness([task.prompt for task in tasks], prompt_tokens, width=5, minimum=1, threshold=threshold),
        "solution": likeness(
            [task.solution for task in tasks],
            solution_tokens,
            width=7,
            minimum=_MINIMUM_SOLUTION_TOKENS,
            threshold=threshold,
        ),
    }
    # The first kept task of each class of each part, which is the one of the highest role.
    kept: dict[tuple[TaskPart, int], int] = {}
    findings: list[AuditFinding] = []
    for number in sorted(range(len(tasks)), key=lambda index: (_RANKS[tasks[index].role], index)):
        of_task = [finding for part in parts for finding in _of_part(tasks, number, part, parts[part], kept)]
        findings += of_task
        if not any(finding.dropped for finding in of_task):
            for part, classes in parts.items():
                if (own := classes.class_of[number]) is not None:
                    kept.setdefault((part, own), number)
    return sorted(findings, key=lambda finding: finding.task)


def _of_part(
    tasks: Sequence[Task], number: int, part: TaskPart, classes: Likeness, kept: dict[tuple[TaskPart, int], int]
) -> Iterator[AuditFinding]:
    own = classes.class_of[number]
    if own is None:
        return
    alike = [(own, 1.0, True), *((other, similarity, False) for other, similarity in classes.near.get(own, ()))]
    candidates = [
        (tasks[kept[part, other]].role != tasks[number].role, exact, similarity, kept[part, other])
        for other, similarity, exact in alike
        if (part, other) in kept
    ]
    if candidates:
        leak, exact, similarity, other = max(candidates)
        dropped = tasks[number].role != "test" and (leak or part == "prompt")
        yield AuditFinding(number, other, part, exact, similarity, leak, dropped)


_EXAMPLES = 3
_EXCERPT = 160


def audit(tasks: Sequence[Task], findings: Sequence[AuditFinding], threshold: float) -> str:
    """The report as Markdown. findings: the result of `find` on these tasks."""
    leaks = [finding for finding in findings if finding.leak]
    verdict = (
        f"**{len({finding.task for finding in leaks})} tasks of train or dev are like a task of a higher role and were "
        "dropped.**"
        if leaks
        else "**No task of train or dev is like a task that it is measured by.**"
    )
    parts = [
        "# Audit of the data",
        f"{len(tasks):,} tasks. Alike means: the same normal form (exact), or a Jaccard similarity of shingles of at "
        f"least {threshold:g} (near). Roles: train may be trained on, dev may be chosen by, test is for the end.",
        verdict,
        "## Tasks",
        _inventory(tasks, findings),
        "## Findings",
        _kinds(findings),
        "## Examples",
        _examples(tasks, findings),
    ]
    return "\n\n".join(parts) + "\n"


def _inventory(tasks: Sequence[Task], findings: Sequence[AuditFinding]) -> str:
    dropped = {finding.task for finding in findings if finding.dropped}
    total: Counter[tuple[str, str, str, str]] = Counter()
    kept: Counter[tuple[str, str, str, str]] = Counter()
    without: Counter[tuple[str, str, str, str]] = Counter()
    for number, task in enumerate(tasks):
        key = task.source, task.split, task.role, task.licence
        total[key] += 1
        kept[key] += number not in dropped
        without[key] += task.solution is None
    rows = ([*key, f"{total[key]:,}", f"{kept[key]:,}", f"{without[key]:,}"] for key in sorted(total))
    return _table(["source", "split", "role", "licence", "tasks", "kept", "without solution"], rows)


def _kinds(findings: Sequence[AuditFinding]) -> str:
    counts = Counter(finding.kind for finding in findings)
    dropped = Counter(finding.kind for finding in findings if finding.dropped)
    if not counts:
        return "Nothing."
    rows = ([kind, f"{count:,}", f"{dropped[kind]:,}"] for kind, count in sorted(counts.items()))
    return _table(["kind", "tasks", "dropped"], rows)


def _examples(tasks: Sequence[Task], findings: Sequence[AuditFinding]) -> str:
    shown: list[str] = []
    for kind in sorted({finding.kind for finding in findings}):
        of_kind = [finding for finding in findings if finding.kind == kind]
        shown += [_example(tasks, finding) for finding in of_kind[:_EXAMPLES]]
    return "\n".join(shown) or "None."


def _example(tasks: Sequence[Task], finding: AuditFinding) -> str:
    task, other = tasks[finding.task], tasks[finding.other]
    return (
        f"- {finding.kind}, similarity {finding.similarity:.2f}: `{task.id}` ({task.role}) and `{other.id}` "
        f"({other.role})\n  - {_excerpt(task, finding)}\n  - {_excerpt(other, finding)}"
    )


def _excerpt(task: Task, finding: AuditFinding) -> str:
    text = " ".join(((task.prompt if finding.part == "prompt" else task.solution) or "").split())
    short = text if len(text) <= _EXCERPT else text[: _EXCERPT - 3] + "..."
    return f"`{short.replace('`', chr(39))}`"


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
