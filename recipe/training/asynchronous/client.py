"""verl's client of the engines that continues interrupted requests, with new random draws for each part."""

import asyncio
from typing import Any

from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

from rewards.seeds import reseeded


class _SeededParts(LLMServerClient):
    """Sends a request with a seed derived from its own and from how many tokens are there already.

    An engine draws the first new token of a request with the first numbers of its seed: a continued answer would
    otherwise draw the numbers of its beginning again. A part that is interrupted before its first token is none: verl
    would take the weights at that time for those that the answer began with.
    """

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **options: Any
    ) -> Any:
        sampling = reseeded(sampling_params, len(prompt_ids))
        while True:
            output = await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling, **options)
            if output.token_ids or output.stop_reason not in ("aborted", "abort"):
                return output
            await asyncio.sleep(1)  # as verl's client does


class ContinuingClient(FullyAsyncLLMServerClient, _SeededParts):
    """verl's asynchronous client; each part of an interrupted answer has its own seed."""
