import json
from pathlib import Path

import pytest

from recipe.records.run_directory import RunDirectory
from tests.composing import composed

HOSTILE = (
    "</script><script>document.title='RAN'</script><img src=x onerror=\"document.title='RAN'\"><!--<script>"
    "\x1b[31mred\x1b[0m \u202egnp.exe\u202c \u2028 \ud800 {{ 7 * 7 }} &amp; $$x$$"
)
"""What a page must show and never run: tags, terminal codes, a reversed reading direction, half a character."""
COMMAND = "python -m recipe.train experiment=quickstart credit=counterfactual"


def sample(number: int, **fields: object) -> dict[str, object]:
    """A recorded sample: right if its number is even, of the skill `write` or `sql` in turn."""
    right = float(number % 2 == 0)
    row = {
        "prompt": f"task {number // 2}", "response": f"line one {number}\nline two\nrest", "ground_truth": "tests",
        "score": right, "acc": right, "error": "none" if right else "wrong_answer", "guard": "none",
        "pass_ratio": right, "masked": 0.0, "skill": ["write", "sql"][number // 2 % 2],
    }  # fmt: skip
    return row | fields


def replay(step: int, without: str, instead: str, score: float, **fields: object) -> dict[str, object]:
    """A recorded replay that changes one step."""
    kept = {"change": "step", "step": step, "without": without, "instead": instead, "score": score}
    return kept | {"tests": "", "cause": ""} | fields


def with_credit(number: int, **fields: object) -> dict[str, object]:
    """A sample of two steps: the first passes two tests, the second costs one."""
    start = len(f"line one {number}\n")
    spans = [[0, start], [start, start + 9]]
    parts = [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0]]
    credit = {"credit_spans": spans, "credit_values": [0.5, -0.25], "credit_tests": parts, "credit_replays": 2}
    credit["credit_whole"] = [1.0, 1.0, 0.0, 0.0]
    credit["credit_replayed"] = [
        replay(0, f"line one {number}", "", 0.0, tests="0000"),
        replay(1, "line two", HOSTILE, 0.75, tests="1110"),
    ]
    return sample(number, **(credit | fields))


def make_run(folder: Path, name: str = "r", steps: int = 3, hostile: bool = True) -> RunDirectory:
    """A run of `steps` updates with two validations, protected skills, credit, hostile samples and a restart."""
    run = RunDirectory.prepare(str(folder), "quickstart", name)
    config = composed("experiment=quickstart", "credit=counterfactual", "data.seed=5")
    config.run.command = COMMAND
    run.write_config(config)
    run.log_event("start", command=COMMAND, weights="5eed")
    accuracy = {"write": 0.25, "sql": 0.5, "mean": 0.375, "worst": 0.25}
    run.log_metrics(0, {f"skill/{skill}/accuracy": value for skill, value in accuracy.items()})
    for step in range(1, steps + 1):
        metrics = {
            "critic/score/mean": step / steps, "reward/acc": 0.5, "actor/entropy": 1.0, "timing_s/step": 10.0,
            "timing_s/gen": 6.0, "timing_s/update_actor": 3.0, "perf/total_num_tokens": 100.0, "credit/replays": 8.0,
            "actor/projection/anchor/sql": 0.5, "actor/projection/level/sql": 0.4, "actor/projection/line/sql": 0.3,
        }  # fmt: skip
        if step == steps:
            metrics |= {f"skill/{skill}/accuracy": value + 0.25 for skill, value in accuracy.items()}
            metrics |= {"skill/write/standard_error": 0.125, "skill/mean/standard_error": 0.1}
        run.log_metrics(step, metrics)
        rows = [with_credit(0), *(sample(number) for number in range(1, 4))]
        if hostile:
            rows.append(sample(1, prompt=HOSTILE, response=HOSTILE, skill=HOSTILE, guard=HOSTILE, ground_truth=HOSTILE))
        # As a run writes it, but for the half character, which no file in UTF-8 can hold and JSON can name.
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (run.path / "generations" / f"train_{step:06d}.jsonl").write_text(text)
        run.log_event("step", step=step)
    run.log_event("masked", step=2, samples=3, share=0.02)
    run.log_event("start", command=COMMAND)
    run.log_event("failed", error="SandboxError: <b>down</b> \u202e\x1b[31m")
    return run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make_run(tmp_path)
