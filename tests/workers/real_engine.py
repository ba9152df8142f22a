"""Our training worker on verl's real FSDP2 engine with LoRA, on the CPU, without Ray and vLLM.

Runs in separate processes, because verl reads its platform when it is imported.
"""

import multiprocessing
import os
from collections.abc import Callable
from functools import partial
from typing import Any


def in_ranks(target: Callable[..., None], ranks: int, folder: str, *arguments: Any) -> None:
    """Run target(rank, ranks, folder, *arguments) in `ranks` processes, which can form a process group."""
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_member, args=(target, rank, ranks, folder, *arguments)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0] * ranks


def _member(target: Callable[..., None], rank: int, ranks: int, folder: str, *arguments: Any) -> None:
    one = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    group = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "DIST_INIT_METHOD": f"file://{folder}/store"}
    os.environ.update(one | group, VERL_PLATFORM="cpu", WG_BACKEND="ray")
    target(rank, ranks, folder, *arguments)


def actor_worker(model: str, *overrides: str) -> Any:
    """The actor's worker with the quickstart's settings, changed by these; micro-batches of four if not of tokens."""
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine_workers import TrainingWorkerConfig
    from verl.workers.utils.losses import ppo_loss

    from tests.composing import composed
    from workers.actor import SkillCreditTrainingWorker

    config = composed("experiment=quickstart", f"actor_rollout_ref.model.path={model}", *overrides).actor_rollout_ref
    actor, shape = omega_conf_to_dataclass(config.actor), omega_conf_to_dataclass(config.model)
    actor.model_config = shape
    engine = actor.engine
    engine.use_dynamic_bsz = actor.use_dynamic_bsz
    engine.micro_batch_size_per_gpu = None if actor.use_dynamic_bsz else 4
    engine.max_token_len_per_gpu = engine.infer_max_token_len_per_gpu = actor.ppo_max_token_len_per_gpu
    worker = SkillCreditTrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model", model_config=shape, engine_config=engine,
            optimizer_config=actor.optim, checkpoint_config=actor.checkpoint,
        )
    )  # fmt: skip
    worker.reset()
    worker.set_loss_fn(partial(ppo_loss, config=actor))
    return worker


def answer(row: int) -> tuple[list[int], list[int], list[int]]:
    """Tokens of one answer: prompt, response, and mask of the response tokens that are trained on."""
    response = [8, 20 + row, 9 + row % 3][: 2 + row % 2]
    return [5, 6 + row, 7], response, [1] * len(response)


def samples(rows: list[int], ranks: int = 1, **fields: list[Any]) -> Any:
    """These answers, of two or three tokens, in the format of a rank's share of an update's batch in verl.

    fields: values for all answers, including `advantages`; with `rollout_is_weights` verl's rollout correction has
    rejected the last token of each answer of three.
    """
    import torch
    from verl.utils import tensordict_utils as tu

    from workers.constraints import solution_batch
    from workers.solution_store import StoredSolution

    data = solution_batch([StoredSolution(*answer(row)) for row in rows], 1.0)
    of_tokens: dict[str, list[Any]] = {
        name: fields.pop(name) for name in ("advantages", "rollout_is_weights") if name in fields
    }
    of_tokens = {"old_log_probs": [-4.0] * len(of_tokens["advantages"])} | of_tokens
    for name, values in of_tokens.items():
        tokens = [torch.full((len(answer(row)[1]),), values[row]) for row in rows]
        data[name] = torch.nested.as_nested_tensor(tokens, layout=torch.jagged)
    if "rollout_is_weights" in of_tokens:
        kept = [torch.tensor([1, 1, 0][: len(answer(row)[1])]) for row in rows]
        data["response_mask"] = torch.nested.as_nested_tensor(kept, layout=torch.jagged)
    for name in fields:
        data[name] = torch.tensor([fields[name][row] for row in rows])
    loader = {"epochs": 1, "seed": 0, "dataloader_kwargs": {"shuffle": False}, "calculate_entropy": False}
    size = len(rows) * ranks
    tu.assign_non_tensor(data, temperature=1.0, mini_batch_size=size, global_batch_size=size, **loader)
    return data


def update(worker: Any, data: Any, **asked: Any) -> dict[str, float]:
    """Our metrics of one policy update with these settings in the batch; none where verl asks a rank for no output."""
    from verl.utils import tensordict_utils as tu

    for key, value in asked.items():
        tu.assign_non_tensor_data(data, key, value)
    output = worker.train_mini_batch(data)
    metrics = {} if output is None else tu.get(output, "metrics")
    ours = ("projection", "penalty", "agop", "pg_loss", "actor/pg_loss")
    return {name: float(value[-1]) for name, value in metrics.items() if name.startswith(ours)}
