"""Gradients from an update's own pass in parts equal those of separate passes, on one rank and on two."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.workers.real_engine import actor_worker, in_ranks, samples, update

pytestmark = pytest.mark.slow

# Skills and halves of eight samples: skill 2 is not protected; with two ranks, some halves are on one rank only.
SKILLS, HALVES = [0, 0, 0, 1, 1, 1, 1, 2], [0, 1, 1, 0, 0, 1, 1, 0]
ADVANTAGES = [1.0, -1.0, 0.5, -0.5, 2.0, 1.0, 0.0, -1.5]
IMPORTANCE = [1.0, 0.5, 2.0, 1.5, 0.25, 1.0, 1.0, 0.75]  # verl's rollout correction
SHARES = {1: [list(range(8))], 2: [[0, 1, 3, 4], [2, 5, 6, 7]]}
NAMES = ("one", "zero")
ACTOR = "actor_rollout_ref.actor"
# Made-up old log-probabilities; with the policy's own, nothing would be clipped at the start of an update.
UNCLIPPED = [f"{ACTOR}.{key}=1e6" for key in ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c")]
LAYOUTS = {"one-rank": 1, "two-ranks": 2}
CASES = [(layout, mean) for mean in ("token-mean", "seq-mean-token-mean") for layout in LAYOUTS]


def _run(rank: int, ranks: int, folder: str, model: str, overrides: list[str]) -> None:

    from verl.utils import tensordict_utils as tu

    from workers.agop import AGOP, PART
    from workers.constraints import HALF, SKILL
    from workers.displacement import displacement_norm, shard_group
    from workers.update_request import PROTECTION

    share = SHARES[ranks][rank]

    def after(**asked) -> tuple[dict[str, float], Any]:
        worker = actor_worker(model, *UNCLIPPED, *overrides)
        fields: dict[str, Any] = {SKILL: SKILLS, HALF: HALVES, PART: HALVES, "rollout_is_weights": IMPORTANCE}
        if asked:  # as in a run, where the old log-probabilities are computed before an update
            answers = samples(share, ranks, advantages=ADVANTAGES, **fields)
            tu.assign_non_tensor(answers, micro_batch_size_per_gpu=1)
            worker.infer_batch(answers)
        numbers = update(worker, samples(share, ranks, advantages=ADVANTAGES, **fields), **asked)
        return numbers, worker

    # Wide enough not to bind, so that the update is unprojected.
    token_mean = any(word.endswith("=token-mean") for word in overrides)
    wide = {"method": "qp", "epsilon": 0.99, "epsilon_kind": "cosine", "token_mean": token_mean}
    wide["constraints"] = [{"name": name, "skill": 1 - number} for number, name in enumerate(NAMES)]
    plain, start = after()
    apart, _ = after(**{PROTECTION: wide | {"shared_pass": False}})
    shared, moved = after(**{PROTECTION: wide | {"shared_pass": True}})
    measured, _ = after(**{PROTECTION: wide | {"shared_pass": True}, AGOP: 2})
    wanted = 0.05 + min(apart[f"projection/cosine/{name}"] for name in NAMES)
    tight, projected = after(**{PROTECTION: wide | {"shared_pass": True, "epsilon": -wanted}})
    found = {"plain": plain, "apart": apart, "shared": shared, "tight": tight, "wanted": wanted}
    found["measured"] = measured
    for name, other in (("difference", moved), ("distance", projected)):
        found[name] = displacement_norm(start._shards(), other._shards(), shard_group(start.engine))
    Path(folder, f"found_{rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def run(tiny_suite: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict]:
    """Results of a layout with this aggregation of the loss; each runs once."""

    @cache
    def found(layout: str, mean: str) -> dict:
        folder = tmp_path_factory.mktemp(layout)
        overrides = [f"{ACTOR}.loss_agg_mode={mean}"]
        in_ranks(_run, LAYOUTS[layout], str(folder), f"{tiny_suite}/initial_model", overrides)
        return json.loads((folder / "found_0.json").read_text())

    return found


@pytest.fixture(params=CASES, ids="-".join)
def found(request, run: Callable[[str, str], dict]) -> dict:
    return run(*request.param) | {"mean": request.param[1]}


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


def test_measuring_the_gradients_spectrum_leaves_the_parts_to_the_update(found: dict):
    assert found["measured"]["agop/trace"] > 0
    assert found["shared"].items() <= found["measured"].items()


def test_every_layout_of_ranks_finds_the_same(found: dict, run: Callable[[str, str], dict]):
    alone = run("one-rank", found["mean"])["apart"]
    for name in ("displacement_norm", *(f"{kind}/{each}" for kind in ("gradient_norm", "cosine") for each in NAMES)):
        assert found["apart"][f"projection/{name}"] == pytest.approx(alone[f"projection/{name}"], rel=2e-3), name


def test_what_is_known_in_time_binds_the_step(found: dict):
    """Epsilon demands more gain than the unprojected step gives one of the skills."""
    numbers = found["tight"]
    assert numbers["projection/projected_steps"] == 1
    for name in NAMES:
        unit = numbers[f"projection/gradient_norm/{name}"] * found["plain"]["projection/displacement_norm"]
        assert numbers[f"projection/predicted_change/{name}"] >= 0.999 * found["wanted"] * unit


def test_the_parameters_are_moved_by_what_was_solved(found: dict):
    moved = found["distance"] / found["plain"]["projection/displacement_norm"]
    assert moved > 0.01
    assert moved == pytest.approx(found["tight"]["projection/moved"], rel=1e-2)
