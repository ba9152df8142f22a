"""verl's client of the engines that continues interrupted requests, with new random draws for each part."""

from typing import Any

from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

from rewards.seeds import reseeded


class _SeededParts(LLMServerClient):
    """Sends a request with a seed derived from its own and from how many tokens are there already.

    An engine draws the first new token of a request with the first numbers of its seed: a continued answer would
    otherwise draw the numbers of its beginning again.
    """

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **options: Any
    ) -> Any:
        sampling = reseeded(sampling_params, len(prompt_ids))
        return await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling, **options)


class ContinuingClient(FullyAsyncLLMServerClient, _SeededParts):
    """verl's asynchronous client; each part of an interrupted answer has its own seed."""
