"""Agents with a scripted server: the trained token ids, masks, turns and final states."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, _agent_loop_registry
from verl.utils.import_utils import load_class_from_fqn
from verl.workers.rollout.replica import TokenOutput

from data_prep.micro.model import make_tokenizer
from recipe.training import agents
from recipe.training.agent_workers import SkillCreditAgentLoopWorker
from recipe.training.step_samples import TIMES_BEFORE, TimesBefore, sample_seed
from rewards.environments import EPISODE
from rewards.requests import reseeded
from rewards.sample_credit import SampleCredit
from tests.composing import composed
from tests.scripted_environment import Scripted

TOKENIZER = make_tokenizer()
ROW = {"raw_prompt": [{"role": "user", "content": "write"}], "reward_model": {"ground_truth": "{}"}}


class Server:
    """Returns the script's turns in order, each with a distinct log-probability, and records the requests."""

    def __init__(self, *turns):
        self.turns = [[*TOKENIZER.encode(turn), TOKENIZER.eos_token_id] for turn in turns]
        self.asked = []
        self.seeds = []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **rest):
        number = len(self.asked)
        ids = self.turns[number][: sampling_params["max_tokens"]]
        self.asked.append((request_id, list(prompt_ids), sampling_params["max_tokens"]))
        self.seeds.append(sampling_params.get("seed"))
        steps = {"min_global_steps": number, "max_global_steps": number}
        return TokenOutput(token_ids=ids, log_probs=[-1.0 - number] * len(ids), extra_fields=steps)


@pytest.fixture
def played(monkeypatch):
    monkeypatch.setattr(agents, "of_config", lambda config, name, truth: Scripted())

    def play(*turns, max_turns=3, response_length=200, role="user", **sampling):
        config = OmegaConf.create(
            {
                "actor_rollout_ref": {"rollout": {"response_length": response_length, "prompt_length": 50}},
                "agents": {"max_turns": max_turns, "role": role},
            }
        )
        server = Server(*turns)

        async def run():
            of_stand_ins: Any = agents.CodeAgentLoop
            loop = of_stand_ins(
                DictConfigWrap(config), server, TOKENIZER, None, None, DictConfigWrap(OmegaConf.create({})), "qwen2"
            )
            return await loop.run({"temperature": 1.0, **sampling}, **ROW)

        return asyncio.run(run()), server

    return play


@pytest.mark.parametrize("role", ["user", "tool"])
def test_the_ids_that_are_trained_on_are_those_that_were_generated(played, role):
    output, server = played("bad", "so-so", "good", role=role)
    generated = [turn for turns in server.turns for turn in turns]
    trained = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    assert trained == generated
    turns = output.extra_fields[EPISODE]["turns"]
    assert [output.response_ids[start:end] for start, end in turns] == server.turns
    # Each turn was generated from exactly the tokens before it in the trajectory.
    whole = output.prompt_ids + output.response_ids
    for (_, asked, _), (start, _) in zip(server.asked, turns, strict=True):
        assert asked == whole[: len(output.prompt_ids) + start]
    assert TOKENIZER.decode(whole) == (
        f"<|user|>write<|im_end|>\n<|assistant|>bad<|im_end|>\n<|{role}|>no bad<|im_end|>\n"
        f"<|assistant|>so-so<|im_end|>\n<|{role}|>no so-so<|im_end|>\n<|assistant|>good<|im_end|>"
    )


def test_log_probabilities_weights_and_turns_are_reported(played):
    output, server = played("bad", "good")
    assert [value for value in output.response_logprobs if value] == [-1.0] * 4 + [-2.0] * 5
    assert len(output.response_logprobs) == len(output.response_ids) == len(output.response_mask)
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (0, 1)
    assert output.num_turns == 4
    assert len({request for request, *_ in server.asked}) == 1  # one session: the server's cache knows the prefix
    assert output.extra_fields[EPISODE]["answer"] == 1


def test_an_episode_ends_after_max_turns_and_the_last_valid_action_is_the_answer(played):
    output, server = played("so-so", "bad", "good", max_turns=2)
    assert len(server.asked) == 2
    assert output.response_mask[-1] == 1  # nothing after the last turn
    assert output.extra_fields[EPISODE] == {
        "agent": "code_agent", "turns": [(0, 6), (19, 23)], "answer": 0, "first_failed": True, "failed": False,
    }  # fmt: skip


def test_no_trajectory_is_longer_than_a_response_and_an_observation_without_room_is_left_out(played):
    output, server = played("so-so", "bad", response_length=19)
    assert len(server.asked) == 1
    assert len(output.response_ids) == 6
    output, server = played("so-so", "bad", response_length=21)
    assert [room for *_, room in server.asked] == [21, 2]
    assert len(output.response_ids) == 21


def test_each_turn_of_a_seeded_sample_has_its_own_seed(played):
    _, server = played("bad", "so-so", "good", seed=7)
    _, again = played("bad", "so-so", "good", seed=7)
    assert len(set(server.seeds)) == 3
    assert again.seeds == server.seeds
    _, without = played("bad", "good")
    assert without.seeds == [None, None]


@pytest.mark.slow
@given(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans(), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans(), st.integers(0, 9), st.integers(0, 9)),
)
def test_a_samples_seed_tells_run_step_validation_task_and_number_apart(one, other):
    def seed(rollout_seed, step, validate, task, number):
        row = {"extra_info": {"id": f"micro/{task}"}, "session_id": number}
        return sample_seed(rollout_seed, 8, {"step": step, "validate": validate}, row)

    assert (seed(*one) == seed(*other)) == (one == other)
    assert 0 <= seed(*one) < 2**31


def test_a_row_that_stands_twice_in_a_step_is_answered_again():
    times = TimesBefore()
    assert times.of(3, ["a", "b", "a"]) == [0, 0, 1]
    assert times.of(3, ["b", "a"]) == [1, 2]  # requested again to replace the omitted one
    assert times.of(4, ["a"]) == [0]
    row, step = {"extra_info": {"id": "micro/1"}}, {"step": 3, "validate": False}
    numbers = [{"session_id": number, TIMES_BEFORE: times} for times in (0, 1, 2) for number in range(8)]
    assert len({sample_seed(0, 8, step, row | number) for number in numbers}) == 24
    assert sample_seed(0, 8, step, row | numbers[5]) == sample_seed(0, 8, step, row | {"session_id": 5})


def test_an_environment_that_cannot_be_run_ends_the_episode_and_is_reported(played):
    output, server = played("bad", "crash", "good")
    assert len(server.asked) == 2
    assert output.extra_fields[EPISODE]["failed"]


def test_the_run_configuration_names_a_manager_whose_workers_know_our_agents():
    config = composed("experiment=quickstart")
    manager = load_class_from_fqn(config.actor_rollout_ref.rollout.agent.agent_loop_manager_class, "AgentLoopManager")
    manager = manager(config, None)
    assert manager.agent_loop_workers_class is SkillCreditAgentLoopWorker
    for agent, target in (("code_agent", "CodeAgentLoop"), ("sql_agent", "SqlAgentLoop")):
        assert _agent_loop_registry[agent]["_target_"] == f"recipe.training.agents.{target}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("validate", "cause", "left"),
    [(False, None, [("u", 3)]), (True, None, []), (False, "failed", [("u", 3)]), (False, "masked", [])],
)
async def test_a_sample_that_has_not_met_its_siblings_is_not_waited_for(monkeypatch, validate, cause, left):
    worker = SkillCreditAgentLoopWorker.__ray_metadata__.modified_class
    told, none = [], np.zeros(0)

    async def scores(self, outputs, kwargs):
        if cause is None:
            raise ConnectionError("the engine is gone")
        credit = SampleCredit(values=none, keys=[], tests=none, steps=none, spans=none, cause=cause)
        outputs[-1].extra_fields["reward_extra_info"] = credit.as_info()

    async def loop(self, *arguments, **row):
        await self._compute_score([SimpleNamespace(extra_fields={})], kwargs=row)

    monkeypatch.setattr(worker.__base__, "_compute_score", scores)
    monkeypatch.setattr(worker.__base__, "_run_agent_loop", loop)
    one = worker.__new__(worker)
    one.config = composed("experiment=quickstart", "credit=counterfactual", "run.seeded_samples=false")
    one.board, one._met = SimpleNamespace(leave=lambda *sample: told.append(sample)), set()
    with contextlib.nullcontext() if cause else pytest.raises(ConnectionError):
        await one._run_agent_loop({}, {"validate": validate}, uid="u", session_id=3)
    assert (told, one._met) == (left, set())


@pytest.mark.parametrize(
    ("engine", "key", "others"), [("vllm", "seed", {"detokenize", "output_kind"}), ("sglang", "sampling_seed", set())]
)
async def test_a_sample_has_its_seed_by_the_name_that_the_engine_takes(monkeypatch, engine, key, others):
    worker = SkillCreditAgentLoopWorker.__ray_metadata__.modified_class
    asked = []

    async def generated(self, sampling_params, *arguments, **row):
        asked.append(sampling_params)

    monkeypatch.setattr(worker.__base__, "_run_agent_loop", generated)
    one = worker.__new__(worker)
    one.config = composed("experiment=quickstart", f"actor_rollout_ref.rollout.name={engine}")
    one.board, one._met = None, set()
    row = {"uid": "u", "session_id": 3, "extra_info": {"id": "a", "split": "train", "index": 1}}
    await one._run_agent_loop({"temperature": 1.0}, {"validate": False, "step": 2}, **row)
    (sampling,) = asked
    assert set(sampling) == {"temperature", key} | others
    turns = [reseeded(sampling, turn)[key] for turn in (0, 1)]
    assert len({sampling[key], *turns}) == 3
