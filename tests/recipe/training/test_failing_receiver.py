"""Weights that the engine cannot load end the run with the engine's error, through verl's own hand-over.

Real: our trainer's step end, verl's checkpoint manager, its sender, our receiver, and Ray, which carries the error from
worker to runner to command. Made: the engine's model, which refuses the weights.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

REASON = "model.norm.weight has 7 numbers there and 128 here"


class RefusingEngine:
    """Stands for verl's server of vLLM: runs our receiver on a model that refuses every weight."""

    def __init__(self, handle: str):
        self.handle = handle
        self.collective_rpc = SimpleNamespace(remote=self._call)

    def _call(self, method: str, timeout: float | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import asyncio

        from workers.cpu.weights import CpuWeightsExtension

        receiver: Any = CpuWeightsExtension.__new__(CpuWeightsExtension)
        receiver.model_runner = SimpleNamespace(reload_weights=refuse)
        receiver._get_zmq_handle = lambda: self.handle
        run = asyncio.get_running_loop().run_in_executor
        return run(None, lambda: getattr(receiver, method)(*args, **kwargs))


def refuse(weights_iterator: Any) -> None:
    assert dict(weights_iterator)["model.norm.weight"].shape == (7,)
    raise ValueError(REASON)


class Worker:
    """The part of verl's actor worker that sends weights."""

    def __init__(self, handle: str):
        self.handle = handle

    async def update_weights(self, global_steps: int, mode: str) -> None:
        import torch
        from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

        adapter: Any = ServerAdapter.__new__(ServerAdapter)
        adapter.zmq_handle, adapter.use_shm, adapter._has_server = self.handle, True, True
        adapter.server_handle = RefusingEngine(self.handle)
        adapter.config = SimpleNamespace(checkpoint_engine=SimpleNamespace(update_weights_bucket_megabytes=1))
        adapter.replica_rank = adapter.rollout_rank = 0
        weights = iter({"model.norm.weight": torch.ones(7)}.items())
        await adapter.update_weights(weights, global_steps=global_steps)


class Runner:
    """The end of a training step."""

    def run(self, handle: str) -> None:
        import ray
        from verl.checkpoint_engine.base import CheckpointEngineManager

        from recipe.training.trainer import SkillCreditTrainer

        worker: Any = ray.remote(num_cpus=0)(Worker).remote(handle)
        manager: Any = CheckpointEngineManager.__new__(CheckpointEngineManager)
        manager.backend = "naive"
        manager.actor_wg = SimpleNamespace(update_weights=lambda **given: [worker.update_weights.remote(**given)])
        trainer: Any = SkillCreditTrainer.__new__(SkillCreditTrainer)
        trainer.checkpoint_manager, trainer.timing_raw, trainer.global_steps = manager, {}, 3
        trainer.on_step_end()


def main(folder: Path) -> None:
    import ray
    from rich.console import Console

    from recipe.records.run_directory import RunDirectory
    from recipe.train import report_failure

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    runner: Any = ray.remote(num_cpus=0)(Runner).remote()
    try:
        ray.get(runner.run.remote(f"ipc://{folder}/weights.sock"), timeout=240)
        print("nothing failed")
    except Exception as error:
        report_failure(RunDirectory.prepare(str(folder), "quickstart", "r"), error, Console(width=200))
    ray.shutdown()


@pytest.mark.slow
def test_weights_that_the_engine_refuses_end_the_run_with_its_reason(tmp_path: Path):
    command = [sys.executable, "-m", "tests.recipe.training.test_failing_receiver", str(tmp_path)]
    environment = os.environ | {"VERL_PLATFORM": "cpu", "RAY_ADDRESS": "", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    first = next(line for line in done.stdout.splitlines() if line.startswith("the run failed"))
    assert first == f"the run failed: ValueError: {REASON}"
    assert "nothing failed" not in done.stdout


if __name__ == "__main__":
    from tests.recipe.training import test_failing_receiver as by_name  # Ray pickles it by reference

    by_name.main(Path(sys.argv[1]))
