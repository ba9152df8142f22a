import math

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto

from data_prep.micro.model import make_tokenizer
from rewards.environments import EPISODE
from rewards.manager import TRAINED_ON, SkillCreditRewardManager, _reader
from tests.composing import composed

CONFIG = OmegaConf.create({"skills": {"by": "column", "column": "skill", "function": None}})


def _trajectory(text: str) -> DataProto:
    tokenizer = make_tokenizer()
    response = torch.tensor([[*tokenizer.encode(text), tokenizer.eos_token_id]])
    prompt = torch.tensor([tokenizer.encode("p")])
    fields = {
        "data_source": "trace",
        "reward_model": {"style": "rule", "ground_truth": '{"expected": "5"}'},
        "extra_info": {"index": 0},
        "skill": "trace",
    }
    mask = torch.ones(1, prompt.shape[1] + response.shape[1], dtype=torch.long)
    return DataProto(
        batch=TensorDict({"prompts": prompt, "responses": response, "attention_mask": mask}, batch_size=1),
        non_tensor_batch={key: np.array([value], dtype=object) for key, value in fields.items()},
    )


def _manager(compute_score) -> SkillCreditRewardManager:
    return SkillCreditRewardManager(CONFIG, make_tokenizer(), compute_score)


async def test_the_verifier_sees_the_decoded_response_and_its_numbers_come_back():
    seen = {}

    async def compute_score(**arguments):
        seen.update(arguments)
        return {"score": 0.5, "acc": 0.0, "format": 1.0, "error": "wrong_answer", "pass_ratio": 0.5}

    result = await _manager(compute_score).run_single(_trajectory("f(é)=5"))
    assert seen["solution_str"] == "f(é)=5"
    assert seen["data_source"] == "trace"
    assert result["reward_score"] == 0.5
    verified = {"score": 0.5, "acc": 0.0, "format": 1.0, "error": "wrong_answer", "pass_ratio": 0.5}
    assert result["reward_extra_info"] == verified | {"masked": 0.0, "skill": "trace", "task": "0"}


async def test_an_infrastructure_failure_is_masked_and_never_a_nan_or_a_score():
    async def compute_score(**arguments):
        return {"score": math.nan, "acc": 0.0, "format": 0.0, "error": "infrastructure", "pass_ratio": math.nan}

    result = await _manager(compute_score).run_single(_trajectory("5"))
    assert result["reward_score"] == 0.0
    assert result["reward_extra_info"]["masked"] == 1.0
    assert result["reward_extra_info"]["error"] == "infrastructure"
    assert result["reward_extra_info"]["pass_ratio"] == 0.0


async def test_a_verifier_that_raises_masks_its_sample_and_is_reported_once(caplog: pytest.LogCaptureFixture):
    async def compute_score(**arguments):
        raise RuntimeError("boom")

    manager = _manager(compute_score)
    for _ in range(3):
        result = await manager.run_single(_trajectory("5"))
        assert result["reward_extra_info"]["masked"] == 1.0
        assert result["reward_extra_info"]["error"] == "infrastructure"
    assert sum("a verifier raised" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize(("path", "judged"), [("pkg://rewards", ["5", "6", "5"]), ("mine.py", ["5", "5", "6", "5"])])
async def test_equal_answers_of_a_group_are_judged_once_unless_a_users_own_function_may_draw(path: str, judged: list):
    seen = []

    async def compute_score(solution_str, **arguments):
        seen.append(solution_str)
        acc = float(solution_str == "5")
        verdict = {"score": acc, "acc": acc, "format": 1.0, "error": "none", "pass_ratio": acc}
        return verdict | {"busy_seconds": 0.25, "judge_seconds": 0.5}

    function = {"custom_reward_function": {"path": path, "name": "compute_score"}}
    config = OmegaConf.merge(CONFIG, {"reward": function})
    manager = SkillCreditRewardManager(config, make_tokenizer(), compute_score)
    busy = []
    for text, uid in (("5", "a"), ("5", "a"), ("6", "a"), ("5", "b")):
        data = _trajectory(text)
        data.non_tensor_batch["uid"] = np.array([uid], dtype=object)
        result = await manager.run_single(data)
        assert result["reward_score"] == float(text == "5")
        info = result["reward_extra_info"]
        assert info["judge_seconds"] == 2 * info["busy_seconds"]
        busy.append(info["busy_seconds"])
    assert seen == judged
    assert busy == [0.25, 0.0 if len(judged) == 3 else 0.25, 0.25, 0.25]


def test_a_missing_reward_function_is_refused_with_a_way_out():
    with pytest.raises(ValueError, match="reward=verified"):
        _manager(None)


def _agents_trajectory(failed: bool = False, first_failed: bool = False) -> DataProto:
    data = _trajectory("7 no 5")  # turns "7" and "5", and what a tool said
    episode = {"agent": "code_agent", "turns": [(0, 1), (5, 7)], "answer": 1}
    episode |= {"first_failed": first_failed, "failed": failed}
    data.non_tensor_batch["tool_extra_fields"] = np.array([{EPISODE: episode}], dtype=object)
    return data


async def test_the_answer_turn_of_an_agent_is_judged():
    seen = []

    async def compute_score(solution_str, **arguments):
        seen.append(solution_str)
        acc = float(solution_str == "5")
        return {"score": acc, "acc": acc, "format": 1.0, "error": "none" if acc else "wrong_answer", "pass_ratio": acc}

    result = await _manager(compute_score).run_single(_agents_trajectory(first_failed=True))
    assert seen == ["5"]
    assert (result["reward_score"], result["reward_extra_info"]["first_acc"]) == (1.0, 0.0)
    # What the environment could not tell of the first turn is asked of the verifier.
    result = await _manager(compute_score).run_single(_agents_trajectory())
    assert seen == ["5", "5", "7"]
    assert (result["reward_score"], result["reward_extra_info"]["first_acc"]) == (1.0, 0.0)


async def test_an_agent_whose_environment_failed_is_masked_and_not_judged():
    async def compute_score(**arguments):
        raise AssertionError

    result = await _manager(compute_score).run_single(_agents_trajectory(failed=True))
    assert result["reward_extra_info"]["first_acc"] is None
    assert (result["reward_score"], result["reward_extra_info"]["masked"]) == (0.0, 1.0)
    assert result["reward_extra_info"]["error"] == "infrastructure"


async def test_resampling_gives_the_policy_the_prompt_without_its_padding():
    config = OmegaConf.merge(
        CONFIG,
        {
            "credit": {"kind": "counterfactual", "methods": ["resample"], "unit": "statement", "text_steps": False}
            | {"budget": 4, "choice": "longest", "check_flaky": False, "continuations": 1}
            | {"prefixes": "even", "discount": 1.0, "patience": 1.0}
            | {"skip_equal_groups": False, "seed": 0, "cache_size": 8, "coverage": False, "align": False}
            | {"all_or_nothing": False},
            "reward": {"num_workers": 1},
            "actor_rollout_ref": {"rollout": {"n": 1, "response_length": 20}},
        },
    )
    tokenizer, asked = make_tokenizer(), []

    class Engine:
        class continue_prefix:
            @staticmethod
            async def remote(token_ids, room, draw):
                asked.append((tokenizer.decode(token_ids), room, draw))
                return tokenizer.encode("b=2")

    async def compute_score(solution_str, **arguments):
        return {"score": float("a=1" in solution_str), "error": "none"}

    manager = SkillCreditRewardManager(config, tokenizer, compute_score)
    assert manager.policy is not None
    manager.policy.actor = Engine
    data = _trajectory("a=1\nb=2")
    data.batch["prompts"] = torch.tensor([[tokenizer.pad_token_id, *tokenizer.encode("p")]])
    data.batch["attention_mask"] = torch.tensor([[0] + [1] * (data.batch["attention_mask"].shape[1])])
    data.non_tensor_batch |= {
        name: np.array([value], dtype=object) for name, value in (("uid", "u"), ("session_id", 0), (TRAINED_ON, True))
    }
    info = (await manager.run_single(data))["reward_extra_info"]
    assert asked == [("p", 20, [0, 1]), ("pa=1\n", 16, [0, 1])]
    assert info["credit_values"].tolist() == [1.0, 0.0]


def test_what_our_verifiers_read_is_known_and_of_a_users_function_nothing_is():
    answer = "x\n```python\na = 1\n```"
    config = composed("experiment=quickstart")
    assert _reader(config)("code", "g", answer) == ["none", "a = 1"]
    assert _reader(config)("gsm8k", "g", answer) == ["none", answer]
    config.reward.custom_reward_function.path = "pkg://mine"
    # Equal ground truths of two prompts are not all that such a function is given.
    assert _reader(config)("code", "g", answer) == ["g", answer]
