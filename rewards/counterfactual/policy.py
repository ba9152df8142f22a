"""The policy as reward workers reach it: it goes on from a prefix of its own answer (credit.method=resample).

The engines belong to verl's agent loops, which give a run's workers an actor in front of them under a name.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import ray

from rewards.seeds import seed_key, seed_of

POLICY = "credit_policy"


class Policy:
    """Generates with the run's engines: an actor that every reward worker asks.

    client: verl's client of the engines. sampling: how training samples are drawn. seed: of all continuations; None:
    the engine draws them as they come. engine: its name.
    """

    def __init__(self, client: Any, sampling: Mapping[str, Any], seed: int | None, engine: str = "vllm"):
        self.client = client
        self.sampling = dict(sampling)
        self.seed = seed
        self.seed_key = seed_key(engine)

    async def go_on(self, token_ids: Sequence[int], room: int, draw: Sequence[int]) -> list[int]:
        """At most ``room`` new tokens after these, drawn as training samples are. draw: numbers that tell apart what is
        drawn after equal tokens.

        Raises:
            RuntimeError: the engine ended the request before it was done.
        """
        sampling = self.sampling | {"max_tokens": room}
        if self.seed is not None:
            sampling[self.seed_key] = seed_of(self.seed, *draw, *token_ids)
        output = await self.client.generate(
            request_id=uuid4().hex, prompt_ids=list(token_ids), sampling_params=sampling
        )
        if output.stop_reason == "aborted":
            raise RuntimeError("the engine ended a request before it was done")
        return list(output.token_ids[:room])


def wanted(config: Any) -> bool:
    """Whether a run's credits are estimated with continuations by the policy."""
    credit = config.get("credit")
    return credit is not None and credit.kind != "off" and credit.method == "resample"


def share_policy(config: Any, client: Any) -> Any:
    """Starts the actor; it lives as long as somebody holds what is returned."""
    rollout = config.actor_rollout_ref.rollout
    sampling = {
        "temperature": rollout.temperature,
        "top_p": rollout.top_p,
        "top_k": rollout.top_k,
        "repetition_penalty": 1.0,
        "logprobs": False,
    }
    actor: Any = ray.remote(num_cpus=0)(Policy)
    seed = rollout.seed if config.run.seeded_samples else None
    return actor.options(name=POLICY, max_concurrency=100_000).remote(client, sampling, seed, rollout.name)


class SharedPolicy:
    """A reward worker's way to the policy. response_length: tokens that an answer may have."""

    actor: Any = None

    def __init__(self, response_length: int):
        self.response_length = response_length

    async def go_on(self, prompt_ids: Sequence[int], prefix_ids: Sequence[int], draw: Sequence[int]) -> list[int]:
        """Token ids that the policy adds to a prefix of an answer to this prompt; none where it is full. draw: as in
        `Policy.go_on`."""
        room = self.response_length - len(prefix_ids)
        if room <= 0:
            return []
        if self.actor is None:  # reward workers are started before the engines
            self.actor = ray.get_actor(POLICY)
        token_ids: list[int] = await self.actor.go_on.remote([*prompt_ids, *prefix_ids], room, list(draw))
        return token_ids
