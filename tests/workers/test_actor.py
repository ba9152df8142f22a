"""Our training worker on verl's real FSDP2 engine with LoRA, one rank on the CPU, without Ray and vLLM."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def _run(model: str, folder: str) -> None:
    """In a process of its own: verl reads its platform when it is imported."""
    variables = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(
        variables, VERL_PLATFORM="cpu", MASTER_PORT="0", WG_BACKEND="ray", DIST_INIT_METHOD=f"file://{folder}/store"
    )
    import torch
    from verl.utils import tensordict_utils as tu

    from workers.agop import AGOP, PART
    from workers.constraints import HALF, SKILL, solution_batch
    from workers.memory_rows import MEMORY
    from workers.penalties import PENALTY, Penalty
    from workers.safe_update import PROTECTION
    from workers.solution_store import Solution

    solutions = [Solution([5, 6 + number, 7], [8, 20 + number, 9 + number % 3], [1, 1, 1]) for number in range(8)]

    def batch(kept: int, **extra):
        """Samples 0 to 3 are trained on; 4 to 7 are memory of skill 1, where they are kept."""
        data = solution_batch(solutions[:kept], 1.0)
        for name, values in (("old_log_probs", [-4.0] * 8), ("advantages", [1.0, -1.0, 0.5, -0.5] * 2)):
            rows = [torch.full((3,), value) for value in values[:kept]]
            data[name] = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
        data[SKILL] = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1][:kept])
        data[HALF] = torch.tensor([0, 0, 1, 1] * 2)[:kept]
        data[MEMORY] = torch.tensor([False] * 4 + [True] * 4)[:kept]
        data[PART] = torch.tensor([0, 0, 1, 1] * 2)[:kept]
        loader = {"epochs": 1, "seed": 0, "dataloader_kwargs": {"shuffle": False}, "calculate_entropy": False}
        tu.assign_non_tensor(data, temperature=1.0, mini_batch_size=kept, global_batch_size=kept, **loader)
        for key, value in extra.items():
            tu.assign_non_tensor_data(data, key, value)
        return data

    def update(worker, data) -> dict[str, float]:
        metrics = tu.get(worker.train_mini_batch(data), "metrics")
        ours = ("projection", "penalty", "agop")
        return {name: float(value[-1]) for name, value in metrics.items() if name.startswith(ours)}

    stored = [tuple(solution) for solution in solutions[3:]]
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
    with_memory, without = _worker(model), _worker(model)
    update(with_memory, batch(8))
    update(without, batch(4))
    found = {
        "memory": max(
            float((one - other).abs().max())
            for one, other in zip(with_memory._shards(), without._shards(), strict=True)
        ),
        "qp": update(without, batch(8, **{PROTECTION: protection})),
        "agop": update(without, batch(8, **{AGOP: 2})),
        "first": update(
            without, batch(4, **{PENALTY: {"kind": "ewc", "strength": 5.0, "stage": 1, "solutions": stored}})
        ),
        "second": update(without, batch(4, **{PENALTY: {"kind": "ewc", "strength": 5.0, "stage": 1}})),
    }
    without.save_checkpoint(f"{folder}/checkpoint", None, 1, None)
    anchor, without._penalty, without._averages.kept = without._penalty.anchor, Penalty(), {}
    without.load_checkpoint(f"{folder}/checkpoint")
    found["anchor"] = all(torch.equal(*pair) for pair in zip(anchor, without._penalty.anchor, strict=True))
    found["restored"] = [without._penalty.stage, *without._averages.kept]
    Path(folder, "found.json").write_text(json.dumps(found))


def _worker(model: str):
    from functools import partial

    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine_workers import TrainingWorkerConfig
    from verl.workers.utils.losses import ppo_loss

    from tests.composing import composed
    from workers.actor import SkillCreditTrainingWorker

    config = composed("experiment=quickstart", f"actor_rollout_ref.model.path={model}").actor_rollout_ref
    actor, shape = omega_conf_to_dataclass(config.actor), omega_conf_to_dataclass(config.model)
    actor.model_config = shape
    engine = actor.engine
    engine.use_dynamic_bsz, engine.micro_batch_size_per_gpu = False, 4
    worker = SkillCreditTrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model", model_config=shape, engine_config=engine,
            optimizer_config=actor.optim, checkpoint_config=actor.checkpoint,
        )
    )  # fmt: skip
    import torch

    torch.manual_seed(0)
    worker.reset()
    worker.set_loss_fn(partial(ppo_loss, config=actor))
    return worker


@pytest.fixture(scope="module")
def found(tiny_suite: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("actor")
    process = multiprocessing.get_context("spawn").Process(
        target=_run, args=(f"{tiny_suite}/initial_model", str(folder))
    )
    process.start()
    process.join(600)
    assert process.exitcode == 0
    return json.loads((folder / "found.json").read_text())


def test_an_update_with_memory_is_the_update_without_it(found: dict):
    assert found["memory"] == 0


def test_a_protected_update_keeps_every_constraint_to_first_order(found: dict):
    numbers = found["qp"]
    assert numbers["projection/skipped_steps"] == 0
    for name in ("b.rollouts", "b.solutions"):
        assert numbers[f"projection/gradient_norm/{name}"] > 0
        scale = numbers[f"projection/gradient_norm/{name}"] * numbers["projection/displacement_norm"]
        assert numbers[f"projection/predicted_change/{name}"] >= -1e-5 * scale
        assert -1 <= numbers[f"projection/split_half_cosine/{name}"] <= 1
    assert any(name.startswith("projection/module_cosine/q_proj/") for name in numbers)


def test_the_policy_gradients_of_two_parts_have_a_spectrum(found: dict):
    numbers = found["agop"]
    assert numbers["agop/eigenvalue_1"] >= numbers["agop/eigenvalue_2"] > 0
    assert numbers["agop/trace"] == pytest.approx(numbers["agop/eigenvalue_1"] + numbers["agop/eigenvalue_2"])
    assert 1 < numbers["agop/effective_rank"] <= 2


def test_a_penalty_begins_at_its_anchor_and_grows(found: dict):
    assert found["first"]["penalty/value"] == 0
    assert found["second"]["penalty/value"] > 0


def test_what_the_worker_knows_survives_a_checkpoint(found: dict):
    assert found["anchor"]
    assert found["restored"] == [1, "b.rollouts", "b.solutions"]
