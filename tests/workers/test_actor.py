"""Our training worker on verl's real FSDP2 engine with LoRA, one rank on the CPU, without Ray and vLLM."""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.workers.real_engine import actor_worker, answer, in_ranks, samples, update

pytestmark = pytest.mark.slow

ACTOR = "actor_rollout_ref.actor"
MODES = ("gspo", "cispo", "sapo", "gpg", "clip_cov", "kl_cov", "geo_mean", "dppo_tv", "dppo_kl")
LOSSES = {mode: [f"{ACTOR}.policy_loss.loss_mode={mode}"] for mode in MODES}
LOSSES |= {"dro": [f"{ACTOR}.policy_loss.loss_mode=dro", f"{ACTOR}.policy_loss.dro_beta=0.001"]}
LOSSES |= {"dr_grpo": [f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm"]}
LOSSES |= {"dapo": [f"{ACTOR}.loss_agg_mode=token-mean", f"{ACTOR}.clip_ratio_high=0.28"]}
# As on GPUs: micro-batches of so many tokens, here two or three answers.
DYNAMIC = [f"{ACTOR}.use_dynamic_bsz=true", f"{ACTOR}.ppo_max_token_len_per_gpu=16"]
LOSSES |= {"static batches": [f"{ACTOR}.use_dynamic_bsz=false"], "dynamic batches": DYNAMIC}
OFFLOADED = [f"{ACTOR}.fsdp_config.{part}_offload=true" for part in ("param", "optimizer")]


def _run(rank: int, ranks: int, folder: str, model: str) -> None:
    import torch

    from workers.agop import AGOP, PART
    from workers.constraints import HALF, MEMORY, SKILL
    from workers.displacement import displacement_norm, snapshot
    from workers.penalties import Penalty
    from workers.update_request import PENALTY, PROTECTION

    def batch(kept: int, memory: float = 1.0):
        """Samples 0 to 3 are trained on; 4 to 7, if kept, are memory of skill 1."""
        labels: dict[str, Any] = {SKILL: [0] * 4 + [1] * 4, MEMORY: [False] * 4 + [True] * 4}
        labels |= {HALF: [0, 0, 1, 1] * 2, PART: [0, 0, 1, 1] * 2}
        return samples(
            list(range(kept)),
            advantages=[1.0, -1.0, 0.5, -0.5, memory, -memory, 0.5 * memory, -0.5 * memory],
            **labels,
        )

    stored = [answer(row) for row in range(3, 8)]
    constraints = [
        {"name": "b.rollouts", "skill": 1, "solutions": None},
        {"name": "b.solutions", "skill": 1, "solutions": stored},
    ]
    protection = {
        "constraints": constraints,
        "method": "qp",
        "epsilon": 0.0,
        "epsilon_kind": "absolute",
        "average": 0.5,
    }
    with_memory, without = actor_worker(model), actor_worker(model)
    apart = [_distance(with_memory, other) for other in (without, actor_worker(model, "data.seed=1"))]
    update(with_memory, batch(8))
    update(without, batch(4))
    found: dict[str, Any] = {
        "apart": apart,
        "memory": _distance(with_memory, without),
        "qp": update(without, batch(8), **{PROTECTION: protection}),
        "agop": update(without, batch(8), **{AGOP: 2}),
        "first": update(
            without, batch(4), **{PENALTY: {"kind": "ewc", "strength": 5.0, "stage": 1, "solutions": stored}}
        ),
        "second": update(without, batch(4), **{PENALTY: {"kind": "ewc", "strength": 5.0, "stage": 1}}),
    }
    found["safe"] = _verified_updates(without, batch(8), stored, protection)
    before = snapshot(without._shards())
    endless = {"kind": "ewc", "strength": math.inf, "stage": 1}
    found["endless penalty"] = update(without, batch(4), **{PENALTY: endless})
    found["endless penalty"]["distance"] = displacement_norm(before, without._shards())
    for space in ("gradient", "displacement"):
        before = snapshot(without._shards())
        numbers = update(without, batch(8, memory=math.inf), **{PROTECTION: protection | {"space": space}})
        found[f"skipped in {space}"] = numbers | {"distance": displacement_norm(before, without._shards())}
    without.save_checkpoint(f"{folder}/checkpoint", None, 1, None)
    anchor, without._penalty, without._averages.kept = without._penalty.anchor, Penalty(), {}
    without.load_checkpoint(f"{folder}/checkpoint")
    found["anchor"] = all(torch.equal(*pair) for pair in zip(anchor, without._penalty.anchor, strict=True))
    found["restored"] = [without._penalty.stage, *without._averages.kept]
    found["order"] = {
        "plain": _order(without, batch(4)),
        "protected": _order(without, batch(8), **{PROTECTION: protection, AGOP: 2}),
        "two steps": _order(without, _in_two_steps(batch(4))),
    }
    found["losses"] = {
        loss: update(actor_worker(model, *overrides), batch(8), **{PROTECTION: protection})
        for loss, overrides in LOSSES.items()
    }
    found["offloaded"] = _offloaded(model, batch(8), stored, protection)
    before = snapshot(without._shards())
    numbers = update(without, _in_two_steps(batch(4)))
    moved = displacement_norm(before, without._shards())
    found["two steps"] = [numbers["projection/displacement_norm"], moved]
    Path(folder, "found.json").write_text(json.dumps(found))


def _offloaded(model: str, data: Any, stored: list, protection: dict) -> list[list[dict[str, Any]]]:
    """Updates of each kind by two actors that offload, one of which overwrites what it has offloaded with NaN."""
    from workers.agop import AGOP
    from workers.update_request import PENALTY, PROTECTION

    asked: list[dict[str, Any]] = [
        {PROTECTION: protection},
        {PENALTY: {"kind": "l2", "strength": 5.0, "stage": 1}},
        {AGOP: 2},
    ]
    constraint = protection["constraints"][1] | {"anchored": 3}
    asked += [{PROTECTION: protection | {"constraints": [constraint], "tries": 3, "average": 0.0, "metric": "adam"}}]
    asked += [{PENALTY: {"kind": "rehearsal", "strength": 1.0, "stage": 2, "solutions": stored}}]
    plain, poisoned = (actor_worker(model, *OFFLOADED) for _ in range(2))
    _poison_offloaded(poisoned.engine)
    return [[update(one, data, **each) for each in asked] for one in (plain, poisoned)]


def _verified_updates(worker: Any, data: Any, stored: list, protection: dict) -> dict[str, Any]:
    """Updates in a closed loop, of which the second starts from levels that the first one left; then other options."""
    from workers.displacement import displacement_norm, snapshot
    from workers.safety.verification import measured_levels
    from workers.solution_store import StoredSolution
    from workers.update_request import PROTECTION

    anchor_set = [StoredSolution(*each) for each in stored[:3]]
    rollouts, solutions = protection["constraints"]
    protection = protection | {"average": 0.0, "closed_loop": True}

    def level() -> float:
        with worker.engine.train_mode():
            return measured_levels(worker.engine, [anchor_set, []], 1.0, worker._micro_batch())[0]

    def one(**options: Any) -> dict[str, float]:
        both = [rollouts, solutions | {"anchored": 3} | options.pop("constraint", {})]
        return update(worker, data.copy(), **{PROTECTION: protection | {"constraints": both} | options})

    found: dict[str, Any] = {"before": level(), "loop": one()}
    found["between"], found["first"] = level(), one(tries=3)
    found["after"], found["second"] = level(), one(tries=3, constraint={"anchor": found["between"] + 0.5})
    found["end"] = level()
    bound = solutions | {"solutions": stored[:3], "anchored": 3}
    asked = {"name": "b.asked", "skill": 1, "solutions": stored[3:], "follows": "b.solutions", "gain": 0.5}
    rows = [bound, asked, solutions | {"name": "b.all"}]
    found["gain"] = update(worker, data.copy(), **{PROTECTION: protection | {"constraints": rows, "tries": 3}})
    for name, options in (("adam", {"metric": "adam"}), ("modules", {"per_module": True}), ("signs", {"control": 7})):
        before = snapshot(worker._shards())
        numbers = one(**options, constraint={"anchor": level() + 9.0})  # so it binds
        found[name] = numbers | {"distance": displacement_norm(before, worker._shards())}
    return found


def _poison_offloaded(engine: Any) -> None:
    """Replace verl's moves, which do nothing on a CPU: they put NaN in place of the values, and bring them back."""
    from workers.displacement import local_shard

    away: list[tuple[Any, Any]] = []

    def move(device: str, model: bool, optimizer: bool, grad: bool) -> None:
        if away:
            for tensor, value in away:
                tensor.copy_(value)
            away.clear()
            return
        states = [kept for state in engine.optimizer.state.values() for kept in state.values() if kept.dim()]
        for held in [*(one.detach() for one in engine.module.parameters()), *(states if optimizer else [])]:
            tensor = local_shard(held)
            away.append((tensor, tensor.clone()))
            tensor.fill_(math.nan)

    move("cpu", True, True, True)
    engine.to = move


def _in_two_steps(data: Any) -> Any:
    from verl.utils import tensordict_utils as tu

    half = len(data) // 2
    tu.assign_non_tensor(data, mini_batch_size=half, global_batch_size=half, micro_batch_size_per_gpu=half)
    return data


def _order(worker: Any, data: Any, **asked: Any) -> list[str]:
    """Events of one update, in order: moves of offloaded weights, and reads of the weights other than verl's steps."""
    from unittest import mock

    from workers import actor

    events: list[str] = []

    def noted(name: str, function: Any) -> Any:
        def called(*arguments: Any, **options: Any) -> Any:
            events.append(name)
            return function(*arguments, **options)

        return called

    readers = ("snapshot", "constraint_gradients", "displacement_norm")
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(worker.engine, "to", noted("move", worker.engine.to)))
        stack.enter_context(mock.patch.object(worker.engine, "train_batch", noted("step", worker.engine.train_batch)))
        for name in readers:
            stack.enter_context(mock.patch.object(actor, name, noted(name, getattr(actor, name))))
        update(worker, data, **asked)
    return events


def _distance(one: Any, other: Any) -> float:
    """Largest difference of two workers' trained weights."""
    return max(float((own - its).abs().max()) for own, its in zip(one._shards(), other._shards(), strict=True))


@pytest.fixture(scope="module")
def found(tiny_suite: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("actor")
    in_ranks(_run, 1, str(folder), f"{tiny_suite}/initial_model")
    return json.loads((folder / "found.json").read_text())


def test_new_weights_are_those_of_the_seed(found: dict):
    same, of_another_seed = found["apart"]
    assert same == 0
    assert of_another_seed > 0.01


def test_an_update_with_memory_is_the_update_without_it(found: dict):
    assert found["memory"] == 0


@pytest.mark.parametrize("loss", ["", *LOSSES])
def test_a_protected_update_keeps_every_constraint_to_first_order(found: dict, loss: str):
    numbers = found["losses"][loss] if loss else found["qp"]
    assert (numbers["projection/skipped_steps"], numbers["projection/projected_steps"]) == (0, 1)
    for name in ("b.rollouts", "b.solutions"):
        assert numbers[f"projection/gradient_norm/{name}"] > 0
        scale = numbers[f"projection/gradient_norm/{name}"] * numbers["projection/displacement_norm"]
        assert numbers[f"projection/predicted_change/{name}"] >= -1e-5 * scale
        assert -1 <= numbers[f"projection/split_half_cosine/{name}"] <= 1
    assert any(name.startswith("projection/module_cosine/q_proj/") for name in numbers)


def test_batches_of_tokens_give_the_gradients_of_batches_of_answers(found: dict):
    static, dynamic = (found["losses"][f"{kind} batches"] for kind in ("static", "dynamic"))
    measured = [name for name in static if name.startswith(("projection/gradient_norm", "projection/cosine"))]
    assert len(measured) >= 4
    for name in [*measured, "projection/displacement_norm"]:
        assert dynamic[name] == pytest.approx(static[name], rel=1e-4, abs=1e-7), name


@pytest.mark.parametrize("space", ["gradient", "displacement"])
def test_a_constraint_that_is_not_finite_leaves_the_parameters_untouched(found: dict, space: str):
    """Even if the optimiser has momentum."""
    numbers = found[f"skipped in {space}"]
    assert numbers["projection/skipped_steps"] == 1
    assert numbers["distance"] == 0


def test_the_policy_gradients_of_two_parts_have_a_spectrum(found: dict):
    numbers = found["agop"]
    assert numbers["agop/eigenvalue_1"] >= numbers["agop/eigenvalue_2"] > 0
    assert numbers["agop/trace"] == pytest.approx(numbers["agop/eigenvalue_1"] + numbers["agop/eigenvalue_2"])
    assert 1 < numbers["agop/effective_rank"] <= 2


def test_the_constraints_own_pass_measures_the_level_of_the_anchor_set(found: dict):
    safe = found["safe"]
    assert safe["loop"]["projection/level/b.solutions"] == pytest.approx(safe["before"], abs=1e-5)
    assert safe["loop"]["projection/anchor/b.solutions"] == safe["loop"]["projection/level/b.solutions"]
    assert safe["loop"]["projection/slack/b.solutions"] == 0
    assert "projection/level/b.rollouts" not in safe["loop"]


def test_a_verified_step_ends_where_it_says_and_not_below_its_line(found: dict):
    safe = found["safe"]
    assert safe["first"]["projection/level/b.solutions"] == pytest.approx(safe["between"], abs=1e-6)
    assert safe["first"]["projection/verified_level/b.solutions"] == pytest.approx(safe["after"], abs=1e-6)
    assert safe["first"]["projection/verified_level/b.solutions"] >= safe["first"]["projection/line/b.solutions"]
    # The second update takes the level over from the first, and pushes it up: it is 0.5 nats below its anchor.
    second = safe["second"]
    assert second["projection/level/b.solutions"] == safe["first"]["projection/verified_level/b.solutions"]
    lost = safe["between"] + 0.5 - second["projection/level/b.solutions"]
    assert second["projection/slack/b.solutions"] == pytest.approx(-lost)
    assert second["projection/predicted_change/b.solutions"] > 0
    assert safe["end"] >= safe["after"] - 1e-6


def test_gain_is_asked_of_all_solutions_in_the_pass_that_bounds_the_anchor_set(found: dict):
    numbers = found["safe"]["gain"]
    assert numbers["projection/pair_cosine/b.asked~b.all"] == pytest.approx(1.0, abs=1e-6)
    norms = [numbers[f"projection/gradient_norm/{name}"] for name in ("b.solutions", "b.asked", "b.all")]
    assert norms[1] == pytest.approx(norms[2], rel=1e-5)
    assert norms[0] != pytest.approx(norms[1], rel=1e-2)
    assert numbers["projection/slack/b.asked"] == -0.5
    assert numbers["projection/slack/b.solutions"] == 0.0
    assert numbers["projection/level/b.solutions"] == pytest.approx(found["safe"]["end"], abs=1e-6)
    assert "projection/line/b.asked" not in numbers


@pytest.mark.parametrize("option", ["adam", "modules", "signs"])
def test_other_metrics_modules_and_signs_project_on_the_real_engine(found: dict, option: str):
    numbers = found["safe"][option]
    assert (numbers["projection/projected_steps"], numbers["projection/skipped_steps"]) == (1, 0)
    if option == "signs":  # a correction that knows no skill leaves the constraint violated, and says so
        assert numbers["projection/violated_steps"] == 1
    else:
        assert numbers["projection/predicted_change/b.solutions"] > 0
    assert numbers["projection/moved"] > 0.05
    assert numbers["projection/displacement_norm"] == pytest.approx(numbers["distance"])


def test_a_penalty_begins_at_its_anchor_and_grows(found: dict):
    assert found["first"]["penalty/value"] == 0
    assert found["second"]["penalty/value"] > 0


def test_a_penalty_that_is_not_finite_leaves_the_parameters_untouched(found: dict):
    """The penalty is added after verl's check of the gradient."""
    numbers = found["endless penalty"]
    assert numbers["projection/nonfinite_gradients"] == 1
    assert numbers["distance"] == 0


def test_what_the_worker_knows_survives_a_checkpoint(found: dict):
    assert found["anchor"]
    assert found["restored"] == [1, "b.rollouts", "b.solutions"]


def test_offloaded_weights_are_moved_twice_an_update_and_read_in_between(found: dict):
    assert found["order"] == {
        "plain": ["move", "snapshot", "step", "displacement_norm", "move"],
        "two steps": ["move", "snapshot", "step", "step", "displacement_norm", "move"],
        "protected": [
            "move", "snapshot", "constraint_gradients", "constraint_gradients", "step", "displacement_norm", "move",
        ],
    }  # fmt: skip


def test_the_displacement_is_that_of_all_steps_of_the_update(found: dict):
    measured, moved = found["two steps"]
    assert measured == pytest.approx(moved)
    assert moved > 0


def test_nothing_is_read_or_written_while_it_is_offloaded(found: dict):
    """In updates with projection, L2, a spectrum, verified steps in Adam's metric, and rehearsal."""
    as_is, poisoned = found["offloaded"]
    assert poisoned == as_is
    assert all(math.isfinite(value) for numbers in poisoned for value in numbers.values())
    assert [numbers["projection/displacement_norm"] > 0 for numbers in poisoned] == [True] * 5
