"""Interventions: the changed program is valid, or there is none."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.counterfactual.interventions import intervene, keep
from rewards.counterfactual.segments import segment

CODE = "def f(a):\n    b = a\n    if a < 4:\n        return b + 3\n    return a * 2"


def changed(solution, index, kind, **options):
    return intervene(solution, segment(solution, "statement"), index, kind, **options)


def normal(code):
    return ast.unparse(ast.parse(code))


def test_delete_takes_the_statement_out():
    assert changed(CODE, 1, "delete") == normal(CODE.replace("    b = a\n", ""))


def test_a_body_that_loses_its_last_statement_gets_pass():
    assert changed(CODE, 3, "delete") == normal(CODE.replace("return b + 3", "pass"))


def test_deleting_a_header_takes_its_body_along():
    assert changed(CODE, 2, "delete") == normal("def f(a):\n    b = a\n    return a * 2")
    assert changed(CODE, 0, "delete") == ""


def test_truncate_keeps_the_step_and_what_is_before_it():
    assert changed(CODE, 1, "truncate") == normal("def f(a):\n    b = a")
    assert changed(CODE, 2, "truncate") == normal("def f(a):\n    b = a\n    if a < 4:\n        pass")
    assert changed(CODE, 4, "truncate") == normal(CODE)


def test_replace_puts_another_statement_in_the_place():
    assert changed(CODE, 3, "replace", replacement="return b - 3") == normal(CODE.replace("b + 3", "b - 3"))
    assert changed(CODE, 2, "replace", replacement="if a > 4:") == CODE.replace("a < 4", "a > 4")


@pytest.mark.parametrize("replacement", ["return (", "   ", "if a"])
def test_a_replacement_that_is_no_program_is_no_intervention(replacement):
    assert changed(CODE, 3, "replace", replacement=replacement) is None


def test_the_text_around_the_code_stays():
    solution = f"I think so.\n```python\n{CODE}\n```\nDone."
    assert (
        changed(solution, 1, "delete") == f"I think so.\n```python\n{normal(CODE.replace('    b = a', ''))}\n```\nDone."
    )


def test_text_steps_can_be_taken_out_and_the_program_stays_where_a_verifier_finds_it():
    from rewards.extraction import extract_block

    solution = f"I think so.\n```python\n{CODE}\n```\nDone."
    steps = segment(solution, "statement", text_steps=True)
    for index in (0, len(steps) - 1):
        without = intervene(solution, steps, index, "delete")
        assert without is not None
        assert extract_block(without, "python") == normal(CODE)


def test_try_without_handlers_keeps_a_valid_form():
    code = "try:\n x = 1\nexcept ValueError:\n y = 2\nfinally:\n z = 3"
    steps = segment(code, "statement")
    for index in range(len(steps)):
        for kind in ("delete", "truncate"):
            changed = intervene(code, steps, index, kind)
            assert changed is not None
            assert ast.parse(changed) is not None


def test_lines_that_break_the_program_are_no_valid_intervention():
    code = "def f(a):\n    return a"
    steps = segment(code, "line")
    assert intervene(code, steps, 1, "delete") is None
    assert intervene("a = 1\nb = 2", segment("a = 1\nb = 2", "line"), 0, "delete") == "b = 2"


def test_bad_arguments_are_named():
    steps = segment(CODE, "statement")
    with pytest.raises(ValueError, match="unknown intervention 'shuffle'; valid: delete, truncate, replace"):
        intervene(CODE, steps, 0, "shuffle")  # type: ignore[arg-type]  # no intervention
    with pytest.raises(ValueError, match="no step 9: the solution has 5 steps"):
        intervene(CODE, steps, 9, "delete")
    with pytest.raises(ValueError, match="needs the argument `replacement`"):
        intervene(CODE, steps, 0, "replace")


_SIMPLE = st.sampled_from(["a = 1", "b += a", "pass", "return a", "print(b)"])
_BODY = st.recursive(
    st.lists(_SIMPLE, min_size=1, max_size=3),
    lambda inner: st.builds(
        lambda header, body, rest: [header, *(" " + line for line in body), *rest],
        st.sampled_from(["if a:", "for a in b:", "while b:", "def g(a):", "with a:"]), inner, inner,
    ),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.slow
@given(_BODY, st.data())
def test_every_choice_of_statements_leaves_a_program_with_no_other_statements(lines, data):
    code = "def f(a, b):\n" + "\n".join(" " + line for line in lines)
    steps = segment(code, "statement")
    chosen = data.draw(st.sets(st.integers(0, len(steps) - 1)))
    kept = keep(code, steps, chosen)
    assert kept is not None
    remaining = [node for node in ast.walk(ast.parse(kept)) if isinstance(node, ast.stmt)]
    passes = sum(isinstance(node, ast.Pass) for node in remaining)
    assert len(remaining) - passes <= len(chosen)


def test_keeping_everything_changes_nothing_but_layout():
    assert keep(CODE, segment(CODE, "statement"), range(5)) == normal(CODE)
