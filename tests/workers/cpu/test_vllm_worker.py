"""Our vLLM worker samples with one random number per token."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler
from vllm.v1.worker.cpu_worker import CPUWorker

from workers.cpu.sampling import InverseSampler
from workers.cpu.vllm_worker import TrainingCpuWorker


def metadata(generators: dict[int, torch.Generator], temperature: float) -> SamplingMetadata:
    rows = len(generators)
    none = torch.zeros(rows)
    return SamplingMetadata(
        temperature=torch.full((rows,), temperature), all_greedy=False, all_random=True, top_p=None, top_k=None,
        generators=generators, max_num_logprobs=0, no_penalties=True, prompt_token_ids=None, frequency_penalties=none,
        presence_penalties=none, repetition_penalties=none, output_token_ids=[[] for _ in range(rows)],
        allowed_token_ids_mask=None, bad_words_token_ids={}, logitsprocs=LogitsProcessors(),
    )  # fmt: skip


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Sampler:
    """The sampler of a worker whose model runner has vLLM's own."""

    def theirs(self: Any) -> None:
        self.model_runner = SimpleNamespace(sampler=Sampler("processed_logprobs"))

    monkeypatch.setattr(CPUWorker, "init_device", theirs)
    worker = object.__new__(TrainingCpuWorker)
    worker.init_device()
    sampler = worker.model_runner.sampler
    assert isinstance(sampler, Sampler)
    return sampler


def test_the_workers_sampler_keeps_the_mode_of_log_probabilities(sampler: Sampler):
    assert isinstance(sampler.topk_topp_sampler, InverseSampler)
    assert sampler.topk_topp_sampler.logprobs_mode == "processed_logprobs"


@pytest.mark.slow  # vLLM compiles a function
def test_vllms_sampler_draws_one_number_and_returns_the_tokens_log_probability(sampler: Sampler):
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    own = {row: torch.Generator().manual_seed(row) for row in range(3)}
    output = sampler(logits.clone(), metadata(own, temperature=0.5))
    for row in range(3):
        fresh = torch.Generator().manual_seed(row)
        target = torch.rand((), dtype=torch.float64, generator=fresh)
        log_probs = (logits[row] / 0.5).log_softmax(dim=0)
        token = int(torch.searchsorted(log_probs.double().exp().cumsum(0), target, right=True))
        assert output.sampled_token_ids[row].tolist() == [token]
        assert output.logprobs_tensors is not None
        assert float(output.logprobs_tensors.logprobs[row, 0]) == pytest.approx(float(log_probs[token]), abs=1e-5)
        assert torch.equal(own[row].get_state(), fresh.get_state())
