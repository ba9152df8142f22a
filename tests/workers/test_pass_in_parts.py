"""The gradients of an update's own pass in parts are those of passes of their own, on one rank and on two."""

import json
from pathlib import Path

import pytest

from tests.workers.real_engine import actor_worker, in_ranks, samples, update

pytestmark = pytest.mark.slow

# Of eight samples: skill 2 is not protected; on two ranks a half of a skill lies on one of them alone.
SKILLS, HALVES = [0, 0, 0, 1, 1, 1, 1, 2], [0, 1, 1, 0, 0, 1, 1, 0]
ADVANTAGES = [1.0, -1.0, 0.5, -0.5, 2.0, 1.0, 0.0, -1.5]
SHARES = {1: [list(range(8))], 2: [[0, 1, 3, 4], [2, 5, 6, 7]]}
NAMES = ("one", "zero")
# The samples' old log-probabilities are made up; the policy's own need no clipping where an update begins.
UNCLIPPED = [f"actor_rollout_ref.actor.{key}=1e6" for key in ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c")]


def _run(rank: int, ranks: int, folder: str, model: str) -> None:
    from workers.constraints import HALF, SKILL
    from workers.displacement import displacement_norm
    from workers.safe_update import PROTECTION

    def after(**asked) -> tuple[dict[str, float], list]:
        worker = actor_worker(model, *UNCLIPPED)
        fields = {SKILL: SKILLS, HALF: HALVES}
        numbers = update(worker, samples(SHARES[ranks][rank], ranks, advantages=ADVANTAGES, **fields), **asked)
        return numbers, worker._shards()

    # Wide enough not to bind: the update is to be the plain one.
    wide = {"method": "qp", "epsilon": 0.99, "epsilon_kind": "cosine"}
    wide["constraints"] = [{"name": name, "skill": 1 - number} for number, name in enumerate(NAMES)]
    plain, shards = after()
    apart, _ = after(**{PROTECTION: wide | {"shared_pass": False}})
    shared, moved = after(**{PROTECTION: wide | {"shared_pass": True}})
    wanted = 0.05 + min(apart[f"projection/cosine/{name}"] for name in NAMES)
    tight, _ = after(**{PROTECTION: wide | {"shared_pass": True, "epsilon": -wanted}})
    found = {"plain": plain, "apart": apart, "shared": shared, "tight": tight, "wanted": wanted}
    found["difference"] = displacement_norm(shards, moved)
    Path(folder, f"found_{rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module", params=[1, 2], ids=["one-rank", "two-ranks"])
def found(request, tiny_suite: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("parts")
    in_ranks(_run, request.param, str(folder), f"{tiny_suite}/initial_model")
    return json.loads((folder / "found_0.json").read_text())


def test_the_update_is_the_plain_one(found: dict):
    assert found["shared"]["projection/projected_steps"] == 0
    assert found["difference"] < 1e-3 * found["plain"]["projection/displacement_norm"]
    assert found["shared"]["actor/pg_loss"] == pytest.approx(found["plain"]["actor/pg_loss"], rel=1e-4)


def test_the_constraints_are_those_of_a_pass_of_their_own(found: dict):
    assert found["shared"].keys() == found["apart"].keys()
    for name in (f"{kind}/{each}" for kind in ("gradient_norm", "split_half_cosine", "cosine") for each in NAMES):
        value = found["apart"][f"projection/{name}"]
        assert value != 0
        assert found["shared"][f"projection/{name}"] == pytest.approx(value, rel=1e-3, abs=1e-5), name


def test_what_is_known_in_time_binds_the_step(found: dict):
    """More gain is asked for than the plain step brings to one of the skills."""
    numbers = found["tight"]
    assert numbers["projection/projected_steps"] == 1
    for name in NAMES:
        unit = numbers[f"projection/gradient_norm/{name}"] * found["plain"]["projection/displacement_norm"]
        assert numbers[f"projection/predicted_change/{name}"] >= 0.999 * found["wanted"] * unit
