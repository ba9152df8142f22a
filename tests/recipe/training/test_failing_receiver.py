"""Weights that the engine cannot receive or load end the run with its error, through verl's own hand-over.

Real: our trainer's step end, verl's checkpoint manager, its sender, our receiver, and Ray, which carries the error from
worker to runner to command. Made: the engine's model, which refuses the weights, and memory that is too little.
"""

import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from tests.processes import PATIENCE, output_with_ray

REASON = "model.norm.weight has 7 numbers there and 128 here"
NO_MEMORY = "can't allocate memory: you tried to allocate 7 bytes"
BUCKETS = 3
"""In which the weights are sent: a failure in the first leaves two to receive."""
PEFT = {"r": 16, "lora_alpha": 32, "target_modules": ["q_proj"]}


class RefusingEngine:
    """Stands for verl's server of vLLM: runs our receiver on a model that refuses every weight.

    full: what is received cannot be copied.
    """

    def __init__(self, handle: str, full: bool):
        self.handle, self.full = handle, full
        self.collective_rpc = SimpleNamespace(remote=self._call)

    def _call(self, method: str, timeout: float | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import asyncio

        from workers.cpu.weights import CpuWeightsExtension

        receiver: Any = CpuWeightsExtension.__new__(CpuWeightsExtension)
        receiver.model_runner = SimpleNamespace(reload_weights=refuse)
        receiver.remove_lora = lambda number: True
        receiver._update_weights = lambda received, **given: refuse(received)
        receiver._get_zmq_handle = lambda: self.handle

        def receive() -> None:
            with patch("torch.Tensor.clone", out_of_memory) if self.full else nullcontext():
                getattr(receiver, method)(*args, **kwargs)

        return asyncio.get_running_loop().run_in_executor(None, receive)


def refuse(weights_iterator: Any) -> None:
    received = dict(weights_iterator)
    assert len(received) == BUCKETS
    assert received["model.norm.weight"].shape == (7,)
    raise ValueError(REASON)


def out_of_memory(*_: Any, **__: Any) -> None:
    raise RuntimeError(NO_MEMORY)


class Worker:
    """The part of verl's actor worker that sends weights."""

    def __init__(self, handle: str):
        self.handle = handle

    async def update_weights(self, full: bool, adapters: bool, global_steps: int, mode: str) -> None:
        import torch
        from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

        adapter: Any = ServerAdapter.__new__(ServerAdapter)
        adapter.zmq_handle, adapter.use_shm, adapter._has_server = self.handle, True, True
        adapter.server_handle = RefusingEngine(self.handle, full)
        adapter.config = SimpleNamespace(checkpoint_engine=SimpleNamespace(update_weights_bucket_megabytes=1))
        adapter.replica_rank = adapter.rollout_rank = 0
        large = {f"model.layers.{layer}.weight": torch.ones(200_000) for layer in range(BUCKETS - 1)}  # 0.8 MB each
        weights = iter((large | {"model.norm.weight": torch.ones(7)}).items())
        kind = {"peft_config": PEFT, "base_sync_done": True} if adapters else {}
        await adapter.update_weights(weights, global_steps=global_steps, **kind)


class Runner:
    """The end of a training step."""

    def __init__(self, handle: str):
        import ray

        self.worker: Any = ray.remote(num_cpus=0)(Worker).remote(handle)

    def run(self, full: bool, adapters: bool) -> None:
        from verl.checkpoint_engine.base import CheckpointEngineManager

        from recipe.training.trainer import SkillCreditTrainer

        manager: Any = CheckpointEngineManager.__new__(CheckpointEngineManager)
        manager.backend = "naive"
        sent = partial(self.worker.update_weights.remote, full, adapters)
        manager.actor_wg = SimpleNamespace(update_weights=lambda **given: [sent(**given)])
        trainer: Any = SkillCreditTrainer.__new__(SkillCreditTrainer)
        trainer.checkpoint_manager, trainer.timing_raw = manager, {}
        trainer.global_steps = trainer.total_training_steps = 3
        trainer.on_step_end()


LOADING, RECEIVING = f"ValueError: {REASON}", f"RuntimeError: {NO_MEMORY}"
# Whether memory is too little, whether adapters are sent, what fails.
CASES = {
    "loading all weights": (False, False, LOADING),
    "loading adapters": (False, True, LOADING),
    "receiving all weights": (True, False, RECEIVING),
    "receiving adapters": (True, True, RECEIVING),
}


def main(folder: Path) -> None:
    import ray
    from rich.console import Console

    from recipe.records.run_directory import RunDirectory
    from recipe.train import report_failure

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    runner: Any = ray.remote(num_cpus=0)(Runner).remote(f"ipc://{folder}/weights.sock")
    for full, adapters, _ in CASES.values():
        try:
            ray.get(runner.run.remote(full, adapters), timeout=PATIENCE)
            print("the run failed: not at all")
        except Exception as error:
            report_failure(RunDirectory.prepare(str(folder), "quickstart", "r"), error, Console(width=200))
    ray.shutdown()


@pytest.mark.slow
def test_weights_that_the_engine_cannot_use_end_the_run_with_its_reason(tmp_path: Path):
    printed = output_with_ray("tests.recipe.training.test_failing_receiver", tmp_path)
    failures = [line for line in printed.splitlines() if line.startswith("the run failed")]
    assert failures == [f"the run failed: {reason}" for _, _, reason in CASES.values()]


if __name__ == "__main__":
    from tests.recipe.training import test_failing_receiver as by_name  # Ray pickles it by reference

    by_name.main(Path(sys.argv[1]))
