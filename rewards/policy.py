"""The policy that is being trained, as a reward worker can ask it to write on from a prefix."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any, Protocol
from uuid import uuid4

import ray

# verl names the Ray actor of each vLLM server so; the first node's answers for its replica.
_SERVER = "vllm_server_{replica}_0"


class Policy(Protocol):
    """Writes on where a trajectory was cut."""

    async def __call__(self, token_ids: Sequence[int], limit: int, seed: int) -> list[int]:
        """At most `limit` tokens after these (prompt and kept response), drawn as in training.

        Raises:
            PolicyError: nothing was generated.
        """
        ...


class PolicyError(RuntimeError):
    """The policy's servers are not there, or ended a request before it was done."""


class PolicyServers:
    """verl's vLLM servers of the policy, asked in turn; they generate with the weights of this step.

    sampling: temperature, top_p and top_k of training.
    """

    def __init__(self, sampling: dict[str, Any]):
        self.sampling = sampling
        self._turn: Any = None

    @staticmethod
    def of_config(config: Any) -> "PolicyServers":
        rollout = config.actor_rollout_ref.rollout
        return PolicyServers({name: rollout[name] for name in ("temperature", "top_p", "top_k")})

    async def __call__(self, token_ids: Sequence[int], limit: int, seed: int) -> list[int]:
        options = {**self.sampling, "seed": seed, "max_tokens": limit, "logprobs": False}
        found = await self._next().generate.remote(list(token_ids), options, uuid4().hex)
        if found.stop_reason == "aborted":
            raise PolicyError("the policy's server ended a request before it was done")
        return list(found.token_ids)

    def _next(self) -> Any:
        if self._turn is None:  # they are started after the reward workers
            self._turn = cycle(_servers())
        return next(self._turn)


def _servers() -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found.append(ray.get_actor(_SERVER.format(replica=len(found))))
        except ValueError:
            break
    if not found:
        raise PolicyError(f"there is no Ray actor {_SERVER.format(replica=0)}: credit.method=resample needs vLLM")
    return found
