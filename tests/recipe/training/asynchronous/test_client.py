"""An answer that an update interrupts is continued with other random draws than it began with."""

from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.workers.rollout import llm_server
from verl.workers.rollout.replica import TokenOutput

from recipe.training.asynchronous.hooks import ContinuingClient


@pytest.mark.asyncio
async def test_each_part_of_an_interrupted_answer_has_its_own_seed(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[int, int]] = []

    async def send(self: Any, request_id: str, *, prompt_ids: list[int], sampling_params: dict, **_: Any) -> Any:
        asked.append((len(prompt_ids), sampling_params["seed"]))
        stopped = "aborted" if len(asked) < 3 else "completed"
        return TokenOutput(token_ids=[7, 8], log_probs=[0.0, 0.0], stop_reason=stopped)

    async def at_once(seconds: float) -> None:
        pass

    monkeypatch.setattr(llm_server.LLMServerClient, "generate", send)
    monkeypatch.setattr(llm_server.asyncio, "sleep", at_once)
    given = {"seed": 11, "max_tokens": 50}
    client = ContinuingClient(OmegaConf.create())
    output = await client.generate("r", prompt_ids=[1, 2, 3], sampling_params=given)
    assert output.token_ids == [7, 8] * 3
    assert [tokens for tokens, _ in asked] == [3, 5, 7]
    assert len({seed for _, seed in asked}) == 3
    assert given == {"seed": 11, "max_tokens": 50}
    again, asked[:] = list(asked), []
    await client.generate("r", prompt_ids=[1, 2, 3], sampling_params=given)
    assert asked == again


@pytest.mark.asyncio
async def test_an_answer_began_with_the_weights_of_its_first_token(monkeypatch: pytest.MonkeyPatch):
    parts = iter([([], 3), ([], 4), ([7], 5), ([], 6), ([8], 7)])  # tokens of each request, version of its weights

    async def send(self: Any, request_id: str, **_: Any) -> Any:
        tokens, version = next(parts)
        stopped = "completed" if version == 7 else "aborted"
        return TokenOutput(
            token_ids=tokens, log_probs=[0.0] * len(tokens), stop_reason=stopped, extra_fields={"global_steps": version}
        )

    async def at_once(seconds: float) -> None:
        pass

    monkeypatch.setattr(llm_server.LLMServerClient, "generate", send)
    monkeypatch.setattr(llm_server.asyncio, "sleep", at_once)
    output = await ContinuingClient(OmegaConf.create()).generate("r", prompt_ids=[1], sampling_params={"max_tokens": 9})
    assert output.token_ids == [7, 8]
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (5, 7)
