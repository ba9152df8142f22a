"""Access to the policy from reward workers: it continues a prefix of its own answer (credit.methods=[resample]).

The engines belong to verl's agent loops, which start a named actor in front of them for the run's workers.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import ray

from rewards.requests import seed_key, seed_of, tokens_once

POLICY = "credit_policy"


class Policy:
    """Generates with the run's engines; as an actor, it serves every reward worker.

    client: verl's client of the engines. sampling: the sampling parameters of training samples. seed: of all
    continuations; None: the engine draws without a seed. engine: the engine's name.
    """

    def __init__(self, client: Any, sampling: Mapping[str, Any], seed: int | None, engine: str = "vllm"):
        self.client = client
        self.sampling = dict(sampling)
        self.seed = seed
        self.seed_key = seed_key(engine)

    async def continue_prefix(self, token_ids: Sequence[int], room: int, draw: Sequence[int]) -> list[int]:
        """At most ``room`` new tokens after these, sampled like training samples. draw: numbers that distinguish draws
        after equal tokens.

        Raises:
            RuntimeError: the engine aborted the request.
        """
        sampling = self.sampling | {"max_tokens": room}
        if self.seed is not None:
            sampling[self.seed_key] = seed_of(self.seed, *draw, *token_ids)
        output = await self.client.generate(
            request_id=uuid4().hex, prompt_ids=list(token_ids), sampling_params=sampling
        )
        if output.stop_reason == "aborted":
            raise RuntimeError("the engine aborted the request of a continuation")
        return list(output.token_ids[:room])


def needs_policy(config: Any) -> bool:
    """Whether a run's credits are estimated with continuations by the policy."""
    credit = config.get("credit")
    return credit is not None and credit.kind != "off" and "resample" in credit.methods


def share_policy(config: Any, client: Any) -> Any:
    """Start the actor; it lives as long as the returned handle is referenced."""
    rollout = config.actor_rollout_ref.rollout
    sampling = {
        "temperature": rollout.temperature,
        "top_p": rollout.top_p,
        "top_k": rollout.top_k,
        "repetition_penalty": 1.0,
        "logprobs": False,
    }
    actor: Any = ray.remote(num_cpus=0)(Policy)
    sampling = tokens_once(sampling, rollout.name, config.trainer.v1.trainer_mode)
    seed = rollout.seed if config.run.seeded_samples else None
    return actor.options(name=POLICY, max_concurrency=100_000).remote(client, sampling, seed, rollout.name)


class SharedPolicy:
    """A reward worker's handle of the policy. response_length: the maximum number of tokens in an answer."""

    actor: Any = None

    def __init__(self, response_length: int):
        self.response_length = response_length

    async def continue_prefix(
        self, prompt_ids: Sequence[int], prefix_ids: Sequence[int], draw: Sequence[int]
    ) -> list[int]:
        """Token ids with which the policy continues a prefix of an answer to this prompt; none if the prefix has the
        maximum length. draw: as in `Policy.continue_prefix`.
        """
        room = self.response_length - len(prefix_ids)
        if room <= 0:
            return []
        if self.actor is None:  # looked up late: reward workers start before the engines
            self.actor = ray.get_actor(POLICY)
        token_ids: list[int] = await self.actor.continue_prefix.remote([*prompt_ids, *prefix_ids], room, list(draw))
        return token_ids
