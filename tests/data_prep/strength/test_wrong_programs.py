"""Wrong programs: valid, distinct, different from the solution, and reproducible."""

import ast

import pytest

from data_prep.strength.wrong_programs import lost_parts, wrong_programs

SOLUTION = """\
import math

def total(values):
    '''The sum.'''
    values = values[1:]
    found = 0
    for value in values:
        if not value < 3 and value > -7:
            found += abs(value)
    return -found
"""


def test_wrong_programs_are_valid_distinct_and_bounded():
    stub = "def total(*arguments, **named):\n    return 4"
    everything = wrong_programs(SOLUTION, [stub, stub], most=1000, seed="0")
    sources = [one.source for one in everything]
    assert len(set(sources)) == len(sources) > 15
    assert ast.unparse(ast.parse(SOLUTION)) not in sources
    assert all(compile(source, "program", "exec") for source in sources)
    assert sources.count(stub) == 1
    some = wrong_programs(SOLUTION, [stub], most=5, seed="0")
    assert len(some) == 5
    assert set(some) < set(everything)
    assert some[-1].kind == "constant answer"
    assert (
        some == wrong_programs(SOLUTION, [stub], most=5, seed="0") != wrong_programs(SOLUTION, [stub], most=5, seed="1")
    )


def test_lost_parts_are_statements_signs_and_calls():
    lines = set(ast.unparse(ast.parse(SOLUTION)).splitlines())
    lost = {(one.kind, line.strip()) for one in lost_parts(SOLUTION) for line in lines - set(one.source.splitlines())}
    assert lost == {
        ("statement", "values = values[1:]"),
        ("statement", "for value in values:"), ("statement", "if not value < 3 and value > -7:"),
        ("statement", "found += abs(value)"),
        ("sign", "if not value < 3 and value > -7:"),
        ("sign", "return -found"),
        ("call", "found += abs(value)"),
        ("operand", "if not value < 3 and value > -7:"),
        ("bound", "values = values[1:]"),
    }  # fmt: skip
    assert "found = 0" not in {line for _, line in lost}  # without it the program does not run


@pytest.mark.parametrize(
    ("expression", "kind", "left"),
    [
        ("sorted(x, reverse=True)", "keyword", {"sorted(x)"}),
        ("[y for y in x if y]", "condition", {"[y for y in x]"}),
        ("x if y else z", "condition", {"x", "z"}),
        ("x.strip()", "call", {"x"}),
        ("x ** y", "operand", {"x", "y"}),
        ("x[1:y]", "bound", {"x[1:]", "x[:y]"}),
    ],
)
def test_an_expression_loses_its_parts(expression, kind, left):
    lost = {one.source for one in lost_parts(f"x = {expression}") if one.kind == kind}
    assert lost == {f"x = {one}" for one in left}


def test_an_invalid_solution_is_refused():
    with pytest.raises(SyntaxError):
        wrong_programs("def f(:", [], most=5, seed="0")
