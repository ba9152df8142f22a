"""The audit of governed tasks, as Markdown: what there is, what was found, with examples."""

from collections import Counter
from collections.abc import Iterable, Sequence

from data_prep.findings import Finding
from data_prep.tasks import Task

_EXAMPLES = 3
_EXCERPT = 160


def audit(tasks: Sequence[Task], findings: Sequence[Finding], threshold: float) -> str:
    """The whole report. `findings` are those of `findings.find` on these tasks."""
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
        "## What there is",
        _inventory(tasks, findings),
        "## What was found",
        _kinds(findings),
        "## Examples",
        _examples(tasks, findings),
    ]
    return "\n\n".join(parts) + "\n"


def _inventory(tasks: Sequence[Task], findings: Sequence[Finding]) -> str:
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


def _kinds(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.kind for finding in findings)
    dropped = Counter(finding.kind for finding in findings if finding.dropped)
    if not counts:
        return "Nothing."
    rows = ([kind, f"{count:,}", f"{dropped[kind]:,}"] for kind, count in sorted(counts.items()))
    return _table(["kind", "tasks", "dropped"], rows)


def _examples(tasks: Sequence[Task], findings: Sequence[Finding]) -> str:
    shown: list[str] = []
    for kind in sorted({finding.kind for finding in findings}):
        of_kind = [finding for finding in findings if finding.kind == kind]
        shown += [_example(tasks, finding) for finding in of_kind[:_EXAMPLES]]
    return "\n".join(shown) or "None."


def _example(tasks: Sequence[Task], finding: Finding) -> str:
    task, other = tasks[finding.task], tasks[finding.other]
    return (
        f"- {finding.kind}, similarity {finding.similarity:.2f}: `{task.id}` ({task.role}) and `{other.id}` "
        f"({other.role})\n  - {_excerpt(task, finding)}\n  - {_excerpt(other, finding)}"
    )


def _excerpt(task: Task, finding: Finding) -> str:
    text = " ".join(((task.prompt if finding.part == "prompt" else task.solution) or "").split())
    short = text if len(text) <= _EXCERPT else text[: _EXCERPT - 3] + "..."
    return f"`{short.replace('`', chr(39))}`"


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
