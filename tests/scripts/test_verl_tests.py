"""verl's own tests with our classes: what counts as ours, and that every chosen file and reason is of one kind."""

import xml.etree.ElementTree as ElementTree

import pytest

from scripts.verl_tests.__main__ import VerlOutcome, _outcome, report
from scripts.verl_tests.chosen import NOT_RUN, RUN

FILE = RUN[0]
MODULE = FILE.removesuffix(".py").replace("/", ".")


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        (f'<testcase classname="{MODULE}" name="test_a"/>', VerlOutcome(FILE, "test_a", "passed")),
        (
            f'<testcase classname="{MODULE}.TestB" name="test_b[1]"><failure message="E: no&#10;more"/></testcase>',
            VerlOutcome(FILE, "TestB::test_b[1]", "failed", "E: no"),
        ),
        (
            f'<testcase classname="" name="{MODULE}"><error message="collection failure">E</error></testcase>',
            VerlOutcome(FILE, "", "failed", "collection failure"),
        ),
        (
            f'<testcase classname="{MODULE}" name="test_c"><skipped message="no GPU"/></testcase>',
            VerlOutcome(FILE, "test_c", "skipped", "no GPU"),
        ),
    ],
)
def test_a_case_of_pytests_report_is_read(case: str, outcome: VerlOutcome) -> None:
    assert _outcome(ElementTree.fromstring(case)) == outcome


def test_only_what_fails_by_our_classes_alone_fails_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    passed, failed = VerlOutcome(FILE, "test_a", "passed"), VerlOutcome(FILE, "test_b", "failed", "AttributeError")
    assert report([passed, failed], {(FILE, "test_b")}, ["recipe/a.py: f"]) == 0
    assert "fails without us too: test_b: AttributeError" in capsys.readouterr().out
    assert report([passed, failed], set(), ["recipe/a.py: f"]) == 1
    assert "failed: test_b: AttributeError" in capsys.readouterr().out


def test_a_run_of_which_nothing_passed_or_none_of_our_functions_ran_fails() -> None:
    assert report([VerlOutcome(FILE, "test_a", "skipped")], set(), ["recipe/a.py: f"]) == 1
    assert report([VerlOutcome(FILE, "test_a", "passed")], set(), []) == 1


def test_no_file_is_both_run_and_not() -> None:
    assert not set(RUN) & set(NOT_RUN)
    assert len(set(RUN)) == len(RUN)
