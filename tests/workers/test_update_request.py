import pytest

from workers.solution_store import StoredSolution
from workers.update_request import Constraint, Protection, WantedPenalty

SOLUTION = StoredSolution([1], [2, 3], [1, 1])
BOUND = Constraint("b", 2, [SOLUTION])
PROTECTION = Protection([Constraint("a", 0), BOUND, BOUND.asking(0.3, [])], "qp", -0.1, "cosine", average=0.3)
PENALTY = WantedPenalty("ewc", 2.0, 1, [SOLUTION])


@pytest.mark.parametrize("sent", [PROTECTION, PENALTY])
def test_what_the_trainer_sends_is_what_the_worker_reads(sent):
    assert type(sent).from_dict(sent.to_dict()) == sent


def test_a_batch_carries_plain_values():
    sent = PROTECTION.to_dict()
    assert sent["constraints"][0].items() >= {"name": "a", "skill": 0, "solutions": None, "anchor": None}.items()
    assert set(PENALTY.to_dict()) == {"kind", "strength", "stage", "solutions"}
    assert type(sent["constraints"][1]["solutions"][0]) is tuple
    assert type(PENALTY.to_dict()["solutions"][0]) is tuple


def test_an_unknown_key_is_refused_with_the_valid_ones():
    with pytest.raises(ValueError, match=r"Protection has no field epsilom; valid: constraints, method, epsilon"):
        Protection.from_dict(PROTECTION.to_dict() | {"epsilom": 1})
    with pytest.raises(ValueError, match=r"Constraint has no field skil; valid: name, skill, solutions"):
        Protection.from_dict(PROTECTION.to_dict() | {"constraints": [{"name": "a", "skil": 0}]})
    with pytest.raises(ValueError, match=r"WantedPenalty has no field strenght"):
        WantedPenalty.from_dict(PENALTY.to_dict() | {"strenght": 1})
