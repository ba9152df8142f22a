"""A vLLM engine that started with random weights computes with those that the trainer sent."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

PROMPT = list(range(5, 30))
ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TORCH_COMPILE_DISABLE": "1",
}


def engine_after(folder: Path, sent: dict[str, Any], handle: str) -> dict[int, float]:
    """The engine's most likely next tokens with their log-probabilities, after it received weights."""
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    from workers.cpu.weights import CpuWeightsExtension

    engine = LLM(
        str(folder), load_format="dummy", dtype="float32", enforce_eager=True, max_model_len=64,
        skip_tokenizer_init=True, worker_extension_cls="workers.cpu.weights.CpuWeightsExtension",
    )  # fmt: skip
    CpuWeightsExtension._get_zmq_handle = lambda self: handle  # type: ignore[method-assign]
    sender = BucketedWeightSender(handle, bucket_size_mb=1, use_shm=True)
    sending = threading.Thread(target=lambda: asyncio.run(sender.async_send_weights(iter(sent.items()))))
    sending.start()
    try:
        engine.collective_rpc("update_weights_from_ipc", kwargs={"use_shm": True})
    finally:
        sending.join(timeout=30)
        assert not sending.is_alive(), "the trainer would wait for ever"
    compare_digests(engine, sent)
    settings = SamplingParams(max_tokens=1, logprobs=3, temperature=0, detokenize=False)
    (answer,) = engine.generate([TokensPrompt(prompt_token_ids=PROMPT)], settings, use_tqdm=False)
    (found,) = answer.outputs[0].logprobs or []
    assert found is not None
    return {token: one.logprob for token, one in found.items()}


def compare_digests(engine: Any, sent: dict[str, Any]) -> None:
    """Fail unless the engine, which has packed these weights, finds the same, and notices others."""
    import torch

    from workers.digests.weights import SentWeights

    def require(weights: dict[str, Any], step: int) -> None:
        noted = SentWeights(step, torch.float32)
        for name, weight in weights.items():
            noted.add(name, weight)
        engine.collective_rpc("require_weights", args=(noted.digests, step))

    for step in range(3):
        require(sent, step)
    for name, weight in sent.items():
        with pytest.raises(Exception, match=f"other weights than were trained .*{name}"):
            require(sent | {name: weight * 1.0001}, 3)


def main(folder: Path, kind: str) -> None:
    """Print what the engine and transformers find, as JSON."""
    import torch

    from tests.workers.cpu.models import tiny_model

    model = tiny_model(tie_word_embeddings=kind != "own head", initializer_range=0.3, hidden_size=128)
    model.save_pretrained(folder)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    if kind == "wrong shape":
        weights["model.norm.weight"] = torch.ones(7)
    found = engine_after(folder, weights, f"ipc://{folder}/weights.sock")
    log_probs = model(torch.tensor([PROMPT])).logits[0, -1].log_softmax(dim=0)
    print(json.dumps([[value, float(log_probs[token])] for token, value in found.items()]))


def run(folder: Path, kind: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.workers.cpu.test_weights", str(folder), kind]
    return subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tied head", "own head"])
def test_the_engine_computes_with_the_weights_that_it_received(kind: str, tmp_path: Path):
    done = run(tmp_path, kind)
    assert done.returncode == 0, done.stderr[-3000:]
    pairs = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(pairs) >= 3
    for ours, theirs in pairs:
        assert ours == pytest.approx(theirs, abs=1e-4)


@pytest.mark.slow
def test_weights_that_do_not_fit_are_an_error_and_not_a_wait(tmp_path: Path):
    done = run(tmp_path, "wrong shape")
    assert done.returncode != 0
    assert "wait for ever" not in done.stderr
    assert "shape" in done.stderr or "size" in done.stderr, done.stderr[-3000:]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
