"""Continuations by the policy, with an engine that records its requests."""

from types import SimpleNamespace

from rewards.counterfactual.policy import Policy
from rewards.requests import SEED_KEYS


class Engine:
    def __init__(self):
        self.asked = []

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        self.asked.append(sampling_params)
        return SimpleNamespace(stop_reason="length", token_ids=[1] * 9)


async def seeds(policy_seed, *questions, name="vllm", key="seed"):
    engine = Engine()
    policy = Policy(engine, {"temperature": 1.0}, policy_seed, name)
    for tokens, draw in questions:
        assert await policy.continue_prefix(tokens, 4, draw) == [1] * 4
    assert all(set(SEED_KEYS) & set(sampling) <= {key} for sampling in engine.asked)
    return [sampling.get(key) for sampling in engine.asked]


async def test_draws_after_equal_tokens_differ_and_come_again_in_another_run():
    questions = [([5, 6], (0, 1)), ([5, 6], (0, 2)), ([5, 6], (1, 1)), ([5], (0, 1))]
    found = await seeds(3, *questions)
    assert len(set(found)) == 4
    assert await seeds(3, *reversed(questions)) == found[::-1]
    assert await seeds(4, questions[0]) != found[:1]
    assert await seeds(None, questions[0]) == [None]


async def test_each_engine_takes_a_seed_by_its_own_name():
    question = [1, 2], [0]
    assert await seeds(3, question, name="sglang", key="sampling_seed") == await seeds(3, question)
