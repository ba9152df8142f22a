"""Groups without a signal are left out (`algorithm.filter_groups`, DAPO) under our trainers, on verl's own code.

Real: our trainers as their configuration builds them, verl's replay buffers, dataloader, refill and advantages, Ray and
the transfer queue. Made: the agent loops, which answer at once, with scores from a script.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.processes import output_with_ray

BATCH, ANSWERS, TOKENS = 4, 4, 3
RIGHT, WRONG, MIXED, DOWN = "1111", "0000", "0101", "xxxx"
"""Scores of a group's answers; x: could not be verified."""
MODES = ("skillcredit", "skillcredit_colocate_async")
SCRIPT = [RIGHT, MIXED, WRONG, MIXED, MIXED, WRONG, MIXED, "0011", *[MIXED] * 9]


class Agents:
    """Stands for verl's manager of agent loops: the next prompt's answers get the next scores of the script."""

    def __init__(self, script: Iterator[str]):
        self._script = script
        self.asked: list[tuple[str, int]] = []

    def generate_sequences(self, batch: Any) -> None:
        import transfer_queue as tq

        from recipe.training.asynchronous.prompts import DRAWN

        tasks = [row["id"] for row in list(batch["extra_info"])]
        self.asked += zip(tasks, list(batch["times_before"]), strict=True)
        places = list(batch[DRAWN]) if DRAWN in batch else [{}] * len(tasks)
        for uid, row, place in zip(list(batch["uid"]), list(batch["extra_info"]), places, strict=True):
            keys = [f"{uid}_{session}_0" for session in range(ANSWERS)]
            tags = [{"seq_len": TOKENS + 1, "min_global_steps": 0, "max_global_steps": 0} for _ in keys]
            fields = _answers(uid, next(self._script), extra_info=[row] * ANSWERS, **{DRAWN: [place] * ANSWERS})
            tq.kv_batch_put(keys=keys, partition_id="train", fields=fields, tags=tags)
            tq.kv_put(key=uid, partition_id="train", tag={"status": "finished"})


def _answers(uid: str, scores: str, **fields: list[Any]) -> Any:
    """Samples of a group as verl's workers and our reward manager leave them; steps differ in credit."""
    import numpy as np
    import torch
    from verl.utils import tensordict_utils as tu

    from rewards.sample_credit import SampleCredit

    credit = SampleCredit(
        values=np.array([0.0, 0.5], np.float32), steps=np.array([0, 1, 1], np.int32), keys=(),
        tests=np.zeros((0, 0)), spans=np.zeros((0, 2)),
    ).as_info()  # fmt: skip
    verdicts = [
        {"masked": float(each == "x"), "score": float(each == "1"), "acc": float(each == "1")} for each in scores
    ]
    ones, rewards = torch.ones(ANSWERS, TOKENS), torch.zeros(ANSWERS, TOKENS)
    rewards[:, -1] = torch.tensor([verdict["score"] for verdict in verdicts])
    infos = [verdict | {"skill": "write", "task": "t", "error": "none"} | credit for verdict in verdicts]
    tensors = {"response_mask": ones, "loss_mask": ones, "rm_scores": rewards, "old_log_probs": -ones}
    tensors |= {"rollout_log_probs": -ones}
    rows: dict[str, Any] = {
        name: torch.nested.as_nested_tensor(list(each), layout=torch.jagged) for name, each in tensors.items()
    }
    extra = [{"reward_extra_info": info} for info in infos]
    return tu.get_tensordict(rows | {"uid": [uid] * ANSWERS, "extra_fields": extra} | fields)


def trainer(mode: str, folder: Path, script: list[str], *words: str) -> Any:
    """A trainer as this configuration builds it, up to its dataloader, in step 1, with scripted agents."""
    from omegaconf import open_dict
    from verl.trainer.ppo.v1.trainer_base import get_trainer_cls

    import recipe.training.asynchronous.trainer
    import recipe.training.trainer  # noqa: F401
    from tests.composing import composed

    actor = "actor_rollout_ref.actor"
    config = composed(
        "experiment=quickstart", "credit=counterfactual", f"trainer.v1.trainer_mode={mode}",
        f"data.train_files={folder}/train.parquet", f"data.val_files={folder}/val.parquet",
        f"actor_rollout_ref.model.path={folder}/initial_model", f"run.directory={tempfile.mkdtemp(dir=folder)}",
        f"data.train_batch_size={BATCH}", f"{actor}.ppo_mini_batch_size={BATCH}",
        f"actor_rollout_ref.rollout.n={ANSWERS}",
        "algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acc", "run.poll_interval=0.05",
        "data.filter_overlong_prompts=false", *words,
    )  # fmt: skip
    with open_dict(config):
        config.trainer.total_training_steps = 9
    made: Any = get_trainer_cls(mode)(config)
    made._init_tokenizer()
    made._init_dataloader()
    made.agent_loop_manager = Agents(iter(script))
    made.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0]})
    made.global_steps = 1
    return made


def one_step(made: Any) -> dict[str, Any]:
    """Prompts of a step, the batch that verl's buffer takes, and its advantages with credit."""
    from recipe.training.step_samples import fetch

    made.prepare_step()
    batch, metrics = made.replay_buffer.sample(made.global_steps, "train", BATCH)
    batch = made._balance_batch(batch, metrics)
    made._compute_advantage(batch, metrics)
    found = fetch(batch, "advantages", "rm_scores", "uid")
    groups: dict[str, list[float]] = {}
    for uid, reward in zip(list(found["uid"]), found["rm_scores"].unbind(), strict=True):
        groups.setdefault(uid, []).append(float(reward.sum()))
    return {
        "asked": made.agent_loop_manager.asked,
        "scores": list(groups.values()),
        "advantages": [[float(reward.sum()), row.tolist()] for reward, row in zip(
            found["rm_scores"].unbind(), found["advantages"].unbind(), strict=True)],
        "metrics": {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)},
        "buffer": type(made.replay_buffer).__name__,
    }  # fmt: skip


def clear_queue() -> None:
    import transfer_queue as tq

    if keys := list((tq.kv_list("train") or {}).get("train", {})):
        tq.kv_clear(keys=keys, partition_id="train")


def why_it_ends(made: Any) -> list[str]:
    try:
        one_step(made)
    except RuntimeError as error:
        return [type(error).__name__, str(error)]
    finally:
        clear_queue()
    return []


def main(folder: Path) -> None:
    import ray
    import transfer_queue as tq
    from omegaconf import OmegaConf

    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}))
    found: dict[str, Any] = {}
    for mode in MODES:
        found[mode] = {"step": one_step(trainer(mode, folder, SCRIPT))}
        clear_queue()
        found[mode]["down"] = why_it_ends(trainer(mode, folder, [DOWN] * 99))
        limit = "algorithm.filter_groups.max_num_gen_batches=2"
        found[mode]["limit"] = why_it_ends(trainer(mode, folder, [RIGHT, *[WRONG] * 99], limit))
        slow = trainer(mode, folder, [WRONG] * 5 * BATCH + [MIXED] * 99)
        found[mode]["slow"] = [one_step(slow)["scores"], [
            event for event in slow.run_directory.events() if event["event"] == "left_out"
        ]]  # fmt: skip
        clear_queue()
    print(json.dumps(found))
    ray.shutdown()


@pytest.fixture(scope="module")
def found(tiny_suite: Path) -> dict[str, Any]:
    printed = output_with_ray("tests.recipe.training.test_filter_groups", tiny_suite)
    return json.loads(printed.strip().splitlines()[-1])


pytestmark = [pytest.mark.slow, pytest.mark.parametrize("mode", MODES)]


def test_a_batch_has_only_groups_with_a_signal(found: dict[str, Any], mode: str):
    step = found[mode]["step"]
    assert [sorted(scores) for scores in step["scores"]] == [[0, 0, 1, 1]] * BATCH
    # The first batch has two groups without one. Synchronous: verl draws two prompts for each, of which one has none
    # and one is left over. Asynchronous: one for each, then one more.
    sync = mode == "skillcredit"
    assert step["metrics"]["training/filter_groups/evicted_samples"] == 3
    assert step["metrics"].get("training/filter_groups/discarded_surplus_samples", 0) == sync
    assert len(step["asked"]) == (8 if sync else 7)


def test_prompts_drawn_in_place_of_others_have_their_own_seeds(found: dict[str, Any], mode: str):
    asked = [tuple(each) for each in found[mode]["step"]["asked"]]
    assert len(set(asked)) == len(asked)


def test_credit_shapes_the_advantages_of_the_groups_that_remain(found: dict[str, Any], mode: str):
    step = found[mode]["step"]
    assert step["metrics"]["credit/fallback_rate"] == 0
    assert len(step["advantages"]) == BATCH * ANSWERS
    for right, (first, second, third) in step["advantages"]:
        assert bool(right) == (first + second + third > 0)
        assert second == third > first  # the second step, of two tokens, has the higher credit


def test_a_sandbox_that_is_down_ends_the_run_instead_of_leaving_out_every_group(found: dict[str, Any], mode: str):
    kind, message = found[mode]["down"]
    assert kind == "TooManyMaskedError"
    assert "step 1: 100% of the samples could not be verified" in message


def test_verls_limit_of_batches_ends_the_run_with_what_all_answers_got(found: dict[str, Any], mode: str):
    kind, message = found[mode]["limit"]
    assert kind == "NoSignalError"
    assert "all answers of each have one acc (" in message
    assert "with 0, 1 with 1)" in message
    assert "more than algorithm.filter_groups.max_num_gen_batches=2 batches" in message


def test_a_step_that_finds_few_groups_says_so(found: dict[str, Any], mode: str):
    scores, (event,) = found[mode]["slow"]
    assert len(scores) == BATCH
    assert (event["step"], event["groups"], event["values"]) == (1, 5 * BATCH, {"0": 5 * BATCH})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
