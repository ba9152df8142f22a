"""When credit pays: lines with errors of their own and few samples; not where one number governs all lines."""

from dataclasses import replace

import numpy as np
import pytest

from examples.toys import sharing
from examples.toys.grid import GridRun
from examples.toys.sharing import CREDIT, ERRORS, FOUR, GRPO, SIXTEEN, Programs, updates_to_solve

pytestmark = pytest.mark.slow

RUN = GridRun(seeds=20, limit=200)
ALIKE, OWN = ERRORS


@pytest.mark.parametrize("errors", ERRORS)
@pytest.mark.parametrize(("programs", "share"), [(SIXTEEN, 0.0476), (FOUR, 0.5521)])
def test_both_starts_have_the_same_share_of_right_programs(programs: Programs, share: float, errors: str):
    chance = sharing._start(programs, errors, 3).sigmoid().mean(1) ** programs.problem.lines
    assert chance.tolist() == pytest.approx([share] * 3, abs=0.0001)


def test_errors_of_their_own_are_those_of_eight_operations_in_24():
    logits = sharing._start(SIXTEEN, OWN, 2)
    assert logits.shape == (2, 24)
    assert (logits[0] == 0).sum() == 8
    assert sharing._start(SIXTEEN, ALIKE, 2).shape == (2, 1)


def updates(errors: str, prompts: int, group: int, programs: Programs = SIXTEEN) -> tuple[float, float]:
    """Means of GRPO and of credit at rate 0.1."""
    size = prompts, group
    grpo, credit = (updates_to_solve(programs, errors, size, arm, 0.1, RUN).mean() for arm in (GRPO, CREDIT))
    return float(grpo), float(credit)


def test_credit_pays_where_lines_err_on_their_own_and_samples_are_few():
    grpo, credit = updates(OWN, 1, 2)
    assert credit < 0.55 * grpo


def test_credit_does_not_pay_where_all_lines_err_alike_and_samples_are_many():
    grpo, credit = updates(ALIKE, 4, 16)
    assert 0.9 * grpo < credit < 1.2 * grpo


def test_credit_pays_little_in_programs_of_four_lines_that_are_often_right():
    grpo, credit = updates(OWN, 2, 4, FOUR)
    assert 0.85 * grpo < credit < grpo


def test_the_same_seed_gives_the_same_updates():
    one, two = (updates_to_solve(SIXTEEN, OWN, (1, 2), CREDIT, 0.1, GridRun(seeds=3, limit=100)) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_runs_that_do_not_reach_half_count_with_one_more_than_all_updates():
    assert updates_to_solve(SIXTEEN, OWN, (1, 2), GRPO, 0.05, GridRun(seeds=2, limit=3)).tolist() == [4.0, 4.0]


def test_the_table_has_a_row_per_programs_and_error_and_credits_ratio(monkeypatch: pytest.MonkeyPatch):
    small = [replace(programs, sizes=((1, 2),)) for programs in (SIXTEEN, FOUR)]
    monkeypatch.setattr(sharing, "SIXTEEN", small[0])
    monkeypatch.setattr(sharing, "FOUR", small[1])
    monkeypatch.setattr(sharing, "RATES", (0.1, 0.2))
    run = GridRun(seeds=4, limit=20)
    results = list(sharing.study(run))
    head, _, *rows = sharing.table(results).splitlines()
    assert head == "|programs|errors|prompts x samples|rate 0.1|rate 0.2|"
    assert [row.split("|")[1:4] for row in rows] == [
        [programs.name, errors, "1x2"] for programs in small for errors in ERRORS
    ]
    grpo, _, credit = results[:3]
    first = rows[0].split("|")[4]
    assert first.startswith(f"{grpo.updates.estimate:.1f} / ")
    assert credit.times_grpo is not None
    assert first.endswith(credit.times_grpo.text(2))
    assert grpo.times_grpo is not None
    assert grpo.times_grpo.estimate == 1.0
    assert len(sharing.record(run, results)["results"]) == len(results) == 24
