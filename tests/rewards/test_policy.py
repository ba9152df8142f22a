"""The policy's servers: asked in turn, with the sampling of training; and verl still names them as we look for them."""

import inspect
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from rewards import policy
from rewards.policy import PolicyError, PolicyServers

CONFIG = OmegaConf.create({"actor_rollout_ref": {"rollout": {"temperature": 0.7, "top_p": 0.9, "top_k": -1}}})


class Server:
    def __init__(self, name: str, stop_reason: str = "completed"):
        self.name, self.stop_reason, self.asked = name, stop_reason, []
        self.generate = SimpleNamespace(remote=self._generate)

    async def _generate(self, token_ids, options, request):
        self.asked.append((token_ids, options))
        return SimpleNamespace(token_ids=[len(self.asked)], stop_reason=self.stop_reason)


def serving(monkeypatch: pytest.MonkeyPatch, *servers: Server) -> None:
    actors = {f"vllm_server_{number}_0": server for number, server in enumerate(servers)}

    def get_actor(name: str):
        if name not in actors:
            raise ValueError(name)
        return actors[name]

    monkeypatch.setattr(policy.ray, "get_actor", get_actor)


async def test_replicas_are_asked_in_turn_with_the_sampling_of_training(monkeypatch):
    first, second = Server("a"), Server("b")
    serving(monkeypatch, first, second)
    servers = PolicyServers.of_config(CONFIG)
    assert [await servers((1, 2), 5, seed) for seed in range(4)] == [[1], [1], [2], [2]]
    expected = {"temperature": 0.7, "top_p": 0.9, "top_k": -1, "max_tokens": 5, "logprobs": False}
    assert first.asked[0] == ([1, 2], expected | {"seed": 0})
    assert second.asked[0] == ([1, 2], expected | {"seed": 1})


async def test_an_aborted_request_and_missing_servers_are_told(monkeypatch):
    serving(monkeypatch, Server("a", "aborted"))
    with pytest.raises(PolicyError, match="ended a request"):
        await PolicyServers.of_config(CONFIG)([1], 5, 0)
    serving(monkeypatch)
    with pytest.raises(PolicyError, match="no Ray actor vllm_server_0_0"):
        await PolicyServers.of_config(CONFIG)([1], 5, 0)


@pytest.mark.slow  # imports vLLM
def test_verl_names_its_servers_and_takes_requests_as_we_do():
    from verl.workers.rollout.vllm_rollout import vllm_async_server as server

    source = inspect.getsource(server.vLLMReplica)
    assert 'return "vllm_"' in source
    assert 'f"{prefix}server_{self.replica_rank}_{node_rank}{self.name_suffix}"' in source
    parameters = list(inspect.signature(server.vLLMHttpServer.generate).parameters)
    assert parameters[1:4] == ["prompt_ids", "sampling_params", "request_id"]
