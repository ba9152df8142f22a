"""Agents as verl agent loops: write, read the environment's answer, fix; up to `agents.max_turns` turns.

Training sees exactly the token ids that vLLM generated, turn by turn; the observations between them have a response
mask of 0. Importing this module registers `code_agent` and `sql_agent` (a row's `agent_name`).
"""

import logging
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.utils.profiler import simple_timer

from rewards.environments import EPISODE, Environment, Episode, Observation, of_config
from rewards.requests import reseeded


class Conversation:
    """Token ids of a trajectory, with mask, log-probabilities and turns of its response.

    ids: prompt and response. mask: 1 for a generated token, 0 for one from the environment or the chat template.
    log_probs: of the response, 0.0 where the mask is 0; None if the server returns none. turns: response tokens
    [start, end) of each assistant turn. metrics: seconds, under verl's names. server_fields: the server's version of
    the weights, under verl's names.
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
        """The log-probabilities before this turn; None if the server returns none."""
        return (self.log_probs or []) if new or self.log_probs is not None else None

    def add_turn(self, ids: list[int], mask: list[int], log_probs: list[float] | None, output: Any) -> None:
        """Append a generated turn, as merged by verl's token builder."""
        self.turns.append((len(self.mask), len(mask)))
        self.ids, self.mask, self.log_probs = ids, mask, log_probs
        if output.num_preempted is not None:
            self.metrics["num_preempted"] = max(0, self.metrics["num_preempted"]) + output.num_preempted
        # The first turn has the weights that a trajectory began with, the last one those that it ended with.
        self.server_fields = output.extra_fields | self.server_fields
        if output.extra_fields.get("max_global_steps") is not None:
            self.server_fields["max_global_steps"] = output.extra_fields["max_global_steps"]

    def add_context(self, ids: list[int], mask: list[int], log_probs: list[float] | None, removed: int) -> None:
        """Append an observation, as merged by verl's token builder, which cut `removed` tokens off the last turn."""
        start, end = self.turns[-1]
        self.turns[-1] = (start, end - removed)
        self.ids, self.mask, self.log_probs = ids, mask, log_probs


logger = logging.getLogger(__name__)


class EnvironmentAgentLoop(AgentLoopBase):
    """Runs one episode of an environment (`rewards.environments`) with the policy as its agent."""

    agent_name: str
    tokenizer: Any  # verl annotates it with its factory's type

    async def run(self, sampling_params: dict[str, Any], priority: int = 0, **row: Any) -> AgentLoopOutput:
        """Generate one trajectory.

        row: fields of the data row; its prompt is `raw_prompt`, its ground truth defines what the agent may see.
        """
        environment = of_config(self.config, self.agent_name, str(row["reward_model"]["ground_truth"]))
        messages = list(row["raw_prompt"])
        conversation = Conversation(await self.ct_build_initial_tokens(messages))
        session = f"det-{int(priority)}" if getattr(self.rollout_config, "full_determinism", False) else uuid4().hex
        failed = False
        for turn in range(self.config.agents.max_turns):
            drawn_with = reseeded(sampling_params, turn)  # each turn draws on its own
            action = await self._generate_turn(conversation, messages, drawn_with, session, int(priority))
            observation = await self._act(environment, action, conversation)
            failed = observation is None
            if observation is None or observation.done or turn + 1 == self.config.agents.max_turns:
                break
            if not await self._append_observation(conversation, messages, observation):
                break
        episode = Episode(
            agent=self.agent_name, turns=conversation.turns, answer=environment.answer,
            first_failed=environment.first_failed, failed=failed,
        )  # fmt: skip
        return AgentLoopOutput(
            prompt_ids=conversation.prompt_ids,
            response_ids=conversation.response_ids,
            response_mask=conversation.mask,
            response_logprobs=conversation.log_probs,
            num_turns=len(messages),
            metrics=AgentLoopMetrics(**conversation.metrics),
            extra_fields=conversation.server_fields | {EPISODE: asdict(episode), "turn_scores": [], "tool_rewards": []},
        )

    async def _generate_turn(
        self,
        conversation: Conversation,
        messages: list[dict[str, Any]],
        sampling_params: dict[str, Any],
        session: str,
        priority: int,
    ) -> str:
        """Generate and append one turn of the policy; returns its text."""
        remaining = self.rollout_config.response_length - len(conversation.mask)
        with simple_timer("generate_sequences", conversation.metrics):
            output = await self.server_manager.generate(
                request_id=session,
                prompt_ids=conversation.ids,
                sampling_params=sampling_params | {"max_tokens": remaining},
                priority=priority,
            )
        merged, mask, log_probs = await self.ct_merge_assistant_token(
            conversation.ids,
            output.token_ids[:remaining],
            conversation.mask,
            conversation.known_log_probs(output.log_probs),
            assistant_logprobs=output.log_probs[:remaining] if output.log_probs else None,
        )
        conversation.add_turn(merged.token_ids, mask, log_probs, output)
        action: str = self.tokenizer.decode(output.token_ids[:remaining], skip_special_tokens=True)
        messages.append({"role": "assistant", "content": action})
        return action

    async def _act(self, environment: Environment, action: str, conversation: Conversation) -> Observation | None:
        """The environment's observation; None if the environment failed, which is not the agent's fault."""
        try:
            with simple_timer("tool_calls", conversation.metrics):
                return await environment.act(action)
        except Exception as error:
            logger.error("the environment of %s failed, so its sample is masked: %s", self.agent_name, error)
            return None

    async def _append_observation(
        self, conversation: Conversation, messages: list[dict[str, Any]], observation: Observation
    ) -> bool:
        """Append the observation and return True; False, appending nothing, if no room were left for another turn."""
        extended = [*messages, {"role": self.config.agents.role, "content": observation.text}]
        merged, mask, log_probs = await self.ct_merge_context_msg(
            messages, extended, conversation.ids, conversation.mask, conversation.log_probs
        )
        if len(mask) >= self.rollout_config.response_length:
            return False
        conversation.add_context(merged.token_ids, mask, log_probs, merged.removed_prefix_token_count)
        messages[:] = extended
        return True


@register("code_agent")
class CodeAgentLoop(EnvironmentAgentLoop):
    """Writes a program, sees the first failing visible test, fixes the program."""

    agent_name = "code_agent"


@register("sql_agent")
class SqlAgentLoop(EnvironmentAgentLoop):
    """Writes a query, sees its rows or its error, revises or repeats it."""

    agent_name = "sql_agent"
