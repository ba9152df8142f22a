"""Verifier `stdio`: the share of inputs with correct output, and errors by kind."""

import pytest
from pydantic import ValidationError

from rewards import compute_score
from rewards.verifiers.stdio import StdioTruth

pytestmark = pytest.mark.slow  # with the sandbox

CASES = [("2 3\n", "5\n"), ("10 20\n", "30\n"), ("1 -1\n", "0\n"), ("7 0\n", "7\n")]
TRUTH = StdioTruth.model_validate(
    {"cases": [{"stdin": stdin, "expected": expected} for stdin, expected in CASES], "visible": 1}
).model_dump_json()


async def judged(program, **settings):
    result = await compute_score("stdio", program, TRUTH, **settings)
    return result["score"], result["error"], result["guard"]


@pytest.mark.parametrize(
    ("program", "score", "error"),
    [
        ("a, b = map(int, input().split())\nprint(a + b)", 1.0, "none"),
        ("Here it is:\n```python\nprint(sum(map(int, input().split())), end='')\n```\nDone.", 1.0, "none"),
        ("a, b = map(int, input().split())\nprint(a + abs(b))", 0.75, "wrong_answer"),
        ("print(sum(map(int, input().split())) / 0)", 0.0, "runtime"),
        ("print(", 0.0, "syntax"),
        ("```bash\nls\n```", 0.0, "extract"),
        ("input()\nwhile True: pass", 0.0, "timeout"),
    ],
)
async def test_the_share_of_right_outputs_and_the_kind_of_failure(program, score, error):
    assert await judged(program, timeout=1.0) == (score, error, "none")


async def test_all_or_nothing_is_an_option():
    program = "a, b = map(int, input().split())\nprint(a + abs(b))"
    assert (await judged(program, partial_credit=False))[0] == 0.0


async def test_a_shown_input_that_is_looked_up_earns_nothing():
    assert await judged("print({'2 3': 5}.get(input(), 0))") == (0.0, "extract", "special_casing")


async def test_a_constant_output_is_logged_and_can_be_refused():
    assert await judged("print(5)") == (0.25, "wrong_answer", "constant")
    assert await judged("print(5)", refuse=["constant"]) == (0.0, "extract", "constant")


@pytest.mark.parametrize(
    ("printed", "score"), [(" *\\n***", 1.0), ("*\\n***", 0.0), ("  *\\n***", 0.0), (" * \\n***\\n\\n", 1.0)]
)
async def test_leading_blanks_count_where_the_task_is_about_layout(printed, score):
    truth = StdioTruth.model_validate({"cases": [{"stdin": "", "expected": " *\n***\n"}], "layout": True})
    program = f"print('{printed}')"
    assert (await compute_score("stdio", program, truth.model_dump_json()))["score"] == score
    loose = truth.model_copy(update={"layout": False}).model_dump_json()
    assert "layout" not in loose
    assert (await compute_score("stdio", program, loose))["score"] == 1.0


@pytest.mark.parametrize("truth", [{"cases": []}, {"cases": [{"stdin": "1"}]}, {"cases": [{"input": "1"}]}])
def test_a_problem_has_inputs_and_outputs(truth):
    with pytest.raises(ValidationError):
        StdioTruth.model_validate(truth)
