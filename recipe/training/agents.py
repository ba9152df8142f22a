"""Agents as verl agent loops: write, read the environment's answer, fix; up to `agents.max_turns` turns.

Training sees the token ids that vLLM generated, turn after turn, with observations between them at a response mask of
0. Importing this module registers `code_agent` and `sql_agent` (a row's `agent_name`).
"""

import logging
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.utils.profiler import simple_timer

from rewards.environments import EPISODE, Environment, Episode, Observation, of_config
from rewards.seeds import SEED_KEYS, seed_of


class Conversation:
    """Token ids from the prompt on, and the mask, log-probabilities and turns of those after it.

    ids: prompt and response. mask: 1 for a generated token, 0 for one that the environment or the chat template
    wrote. log_probs: of the response, 0.0 where the mask is 0; None where the server gives none. turns: response
    tokens [start, end) of each assistant turn. metrics: seconds, in verl's names. server_fields: what the server says
    of the weights that generated (verl's names).
    """

    def __init__(self, prompt_ids: list[int]):
        self.prompt_ids = prompt_ids
        self.ids = prompt_ids
        self.mask: list[int] = []
        self.log_probs: list[float] | None = None
        self.turns: list[tuple[int, int]] = []
        self.metrics: dict[str, Any] = {"num_preempted": -1}
        self.server_fields: dict[str, Any] = {}

    @property
    def response_ids(self) -> list[int]:
        return self.ids[len(self.prompt_ids) :]

    def known_log_probs(self, new: list[float] | None) -> list[float] | None:
        """The log-probabilities so far, for a turn that comes with some; None where the server gives none."""
        return (self.log_probs or []) if new or self.log_probs is not None else None

    def add_turn(self, ids: list[int], mask: list[int], log_probs: list[float] | None, output: Any) -> None:
        """Take over what verl's token builder made of a generated turn."""
        self.turns.append((len(self.mask), len(mask)))
        self.ids, self.mask, self.log_probs = ids, mask, log_probs
        if output.num_preempted is not None:
            self.metrics["num_preempted"] = max(0, self.metrics["num_preempted"]) + output.num_preempted
        # The first turn says which weights a trajectory began with, the last one with which it ended.
        self.server_fields = output.extra_fields | self.server_fields
        if output.extra_fields.get("max_global_steps") is not None:
            self.server_fields["max_global_steps"] = output.extra_fields["max_global_steps"]

    def add_context(self, ids: list[int], mask: list[int], log_probs: list[float] | None, removed: int) -> None:
        """Take over what verl's token builder made of an observation; it may cut `removed` tokens off the last turn."""
        start, end = self.turns[-1]
        self.turns[-1] = (start, end - removed)
        self.ids, self.mask, self.log_probs = ids, mask, log_probs


logger = logging.getLogger(__name__)


def sampling_of_turn(sampling_params: dict[str, Any], turn: int) -> dict[str, Any]:
    """How one turn is drawn: where the sample has a seed, each of its turns has one of its own."""
    seeds = {key: seed for key in SEED_KEYS if (seed := sampling_params.get(key)) is not None}
    return sampling_params | {key: seed_of(seed, turn) for key, seed in seeds.items()}


class EnvironmentAgentLoop(AgentLoopBase):
    """Plays one episode of an environment (`rewards.environments`) with the policy as its agent."""

    agent_name: str
    tokenizer: Any  # verl types it by the factory that makes it

    async def run(self, sampling_params: dict[str, Any], priority: int = 0, **row: Any) -> AgentLoopOutput:
        """One trajectory.

        row: fields of the data row; its prompt is `raw_prompt`, its ground truth says what the agent may see.
        """
        environment = of_config(self.config, self.agent_name, str(row["reward_model"]["ground_truth"]))
        messages = list(row["raw_prompt"])
        talk = Conversation(await self.ct_build_initial_tokens(messages))
        session = f"det-{int(priority)}" if getattr(self.rollout_config, "full_determinism", False) else uuid4().hex
        failed = False
        for turn in range(self.config.agents.max_turns):
            action = await self._speak(talk, messages, sampling_of_turn(sampling_params, turn), session, int(priority))
            observation = await self._act(environment, action, talk)
            failed = observation is None
            if observation is None or observation.done or turn + 1 == self.config.agents.max_turns:
                break
            if not await self._listen(talk, messages, observation):
                break
        episode = Episode(
            agent=self.agent_name, turns=talk.turns, answer=environment.answer,
            first_failed=environment.first_failed, failed=failed,
        )  # fmt: skip
        return AgentLoopOutput(
            prompt_ids=talk.prompt_ids,
            response_ids=talk.response_ids,
            response_mask=talk.mask,
            response_logprobs=talk.log_probs,
            num_turns=len(messages),
            metrics=AgentLoopMetrics(**talk.metrics),
            extra_fields=talk.server_fields | {EPISODE: episode, "turn_scores": [], "tool_rewards": []},
        )

    async def _speak(
        self,
        talk: Conversation,
        messages: list[dict[str, Any]],
        sampling_params: dict[str, Any],
        session: str,
        priority: int,
    ) -> str:
        """One turn of the policy, appended; returns its text."""
        room = self.rollout_config.response_length - len(talk.mask)
        with simple_timer("generate_sequences", talk.metrics):
            output = await self.server_manager.generate(
                request_id=session,
                prompt_ids=talk.ids,
                sampling_params=sampling_params | {"max_tokens": room},
                priority=priority,
            )
        merged, mask, log_probs = await self.ct_merge_assistant_token(
            talk.ids,
            output.token_ids[:room],
            talk.mask,
            talk.known_log_probs(output.log_probs),
            assistant_logprobs=output.log_probs[:room] if output.log_probs else None,
        )
        talk.add_turn(merged.token_ids, mask, log_probs, output)
        action: str = self.tokenizer.decode(output.token_ids[:room], skip_special_tokens=True)
        messages.append({"role": "assistant", "content": action})
        return action

    async def _act(self, environment: Environment, action: str, talk: Conversation) -> Observation | None:
        """The environment's observation; None if it could not be run, which is not the agent's failure."""
        try:
            with simple_timer("tool_calls", talk.metrics):
                return await environment.act(action)
        except Exception as error:
            logger.error("the environment of %s failed, its sample is masked: %s", self.agent_name, error)
            return None

    async def _listen(self, talk: Conversation, messages: list[dict[str, Any]], observation: Observation) -> bool:
        """Append the observation; False (and nothing is appended) where no room would be left for another turn."""
        heard = [*messages, {"role": self.config.agents.role, "content": observation.text}]
        merged, mask, log_probs = await self.ct_merge_context_msg(messages, heard, talk.ids, talk.mask, talk.log_probs)
        if len(mask) >= self.rollout_config.response_length:
            return False
        talk.add_context(merged.token_ids, mask, log_probs, merged.removed_prefix_token_count)
        messages[:] = heard
        return True


@register("code_agent")
class CodeAgentLoop(EnvironmentAgentLoop):
    """Writes a program, sees the first failing visible test, fixes the program."""

    agent_name = "code_agent"


@register("sql_agent")
class SqlAgentLoop(EnvironmentAgentLoop):
    """Writes a query, sees its rows or its error, revises or repeats it."""

    agent_name = "sql_agent"
