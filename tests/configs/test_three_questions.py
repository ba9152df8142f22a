"""The quickstart's experiment protects as the arm of the studies does."""

from tests.composing import composed


def test_the_quickstart_is_the_closed_loop_with_credit():
    chosen, arm = composed("experiment=three_questions"), composed("experiment=quickstart", "arm=closed_loop")
    assert chosen.projection == arm.projection
    assert (chosen.credit.kind, chosen.credit.budget) == ("counterfactual", 4)
