"""Places of prompts in verl's real transfer queue: with their samples, in its checkpoint, and when answered again.

Real: our trainer, verl's submission, sampling, checkpoint of the queue and dispatch after a restart, Ray and the queue.
Made: the agent loops, which answer at once, the latest prompt first, and leave the last one unanswered.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.processes import output_with_ray

ANSWERS = 2


class Agents:
    """Stands for verl's manager of agent loops; answers all of a batch but the last prompt."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.leaves_last = True

    def generate_sequences(self, batch: Any) -> None:
        import torch
        import transfer_queue as tq
        from verl.utils import tensordict_utils as tu

        from recipe.training.asynchronous.prompts import DRAWN

        places, version = list(batch[DRAWN]), int(tu.get(batch, "global_steps"))
        self.asked += [place | {"version": version, "seed": seed} for place, seed in zip(
            places, list(batch["times_before"]), strict=True)]  # fmt: skip
        answered = list(zip(list(batch["uid"]), places, strict=True))
        for uid, place in reversed(answered[: -1 if self.leaves_last else None]):
            keys = [f"{uid}_{session}_0" for session in range(ANSWERS)]
            tags = [{"seq_len": 2, "min_global_steps": version - 1, "max_global_steps": version - 1} for _ in keys]
            fields = tu.get_tensordict({"responses": torch.ones(ANSWERS, 2), DRAWN: [place] * ANSWERS})
            tq.kv_batch_put(keys=keys, partition_id="train", fields=fields, tags=tags)
            tq.kv_put(key=uid, partition_id="train", tag={"status": "finished"})
        if self.leaves_last:
            tq.kv_put(key=answered[-1][0], partition_id="train", tag={"status": "running"})


def trainer(agents: Agents, folder: Path, step: int) -> Any:
    import torch
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

    from recipe.records.run_directory import RunDirectory
    from recipe.training.asynchronous.hooks import InOrderReplayBuffer
    from recipe.training.asynchronous.prompts import PromptStream
    from recipe.training.asynchronous.trainer import SkillCreditColocateTrainer
    from recipe.training.hooks.replay_buffers import Patience
    from recipe.training.schedule import StepPrompts

    made: Any = SkillCreditColocateTrainer.__new__(SkillCreditColocateTrainer)
    made.config = OmegaConf.create({"data": {"train_batch_size": 2, "gen_batch_size": 1}})
    made.settings = SimpleNamespace(credit=SimpleNamespace(kind="off"))
    made.run_directory = SimpleNamespace(log_event=lambda *_, **__: None)
    made.train_dataset = [
        {"extra_info": {"id": f"t/{row}"}, "raw_prompt": [{"role": "user", "content": str(row)}],
         "dummy_tensor": torch.tensor([row])} for row in range(9)
    ]  # fmt: skip
    plan = SimpleNamespace(steps=3, stage=torch.tensor([0, 0, 1]))
    made.schedule = SimpleNamespace(plan=plan, at=lambda step: StepPrompts([step, 7], [False, True]))
    made._stream, made._submission_order, made._next_submission = PromptStream(made.schedule), {}, iter(range(99))
    made.agent_loop_manager, made.trainer_mode, made.global_steps = agents, made.MODE, step
    verls = ReplayBufferAsync(made.MODE, OmegaConf.create(), 8, "drop", OmegaConf.create(), poll_interval=0.05)
    made.replay_buffer = InOrderReplayBuffer.in_place_of(verls, Patience(batch=2), RunDirectory(folder))
    return made


def sampled(made: Any) -> dict[str, Any]:
    """What the trainer knows of the next batch."""
    batch, _ = made.replay_buffer.sample(made.global_steps, "train", 2)
    metrics: dict[str, Any] = {}
    made._read_places(batch, metrics)
    number = made._submission_order
    return {
        "numbers": sorted({number[key.split("_")[0]] for key in batch.keys}),
        "samples": len(batch.keys),
        "memory": sorted(number[uid] for uid in made._memory_prompts),
        "step": made._plan_step,
        "stale": metrics["async/stale_groups"],
    }


def main(folder: Path) -> None:
    import ray
    import transfer_queue as tq
    from omegaconf import OmegaConf

    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}))
    agents = Agents()
    first = trainer(agents, folder, step=1)
    first._add_prompts_to_generate(4)
    batches = [sampled(first)]
    first._stream.save(folder)
    tq.save_checkpoint(str(folder / "queue"))
    tq.kv_clear(keys=list(tq.kv_list("train")["train"]), partition_id="train")
    agents.leaves_last = False
    second = trainer(agents, folder, step=2)
    tq.load_checkpoint(str(folder / "queue"))
    second._stream.load(folder, step=1)
    reissued = second._reissue_inflight_prompts()
    second._add_prompts_to_generate(2)
    batches += [sampled(second), sampled(second)]
    print(json.dumps({"batches": batches, "asked": agents.asked, "reissued": reissued}))
    ray.shutdown()


@pytest.mark.slow
def test_places_stay_with_prompts_and_samples_through_a_restart(tmp_path: Path):
    printed = output_with_ray("tests.recipe.training.asynchronous.test_transfer_queue", tmp_path)
    found = json.loads(printed.strip().splitlines()[-1])
    assert [batch["numbers"] for batch in found["batches"]] == [[0, 1], [2, 3], [4, 5]]
    assert [batch["samples"] for batch in found["batches"]] == [2 * ANSWERS] * 3
    assert [batch["memory"] for batch in found["batches"]] == [[1], [3], [5]]
    assert [batch["step"] for batch in found["batches"]] == [1, 2, 3]
    assert [batch["stale"] for batch in found["batches"]] == [0.0, 1.0, 0.0]  # prompt 2 waited for prompt 3
    assert found["reissued"] == 1
    asked = [(each["number"], each["version"]) for each in found["asked"]]
    assert asked == [(0, 1), (1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (5, 2)]
    assert all(each["seed"] == each["number"] for each in found["asked"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
