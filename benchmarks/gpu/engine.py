"""The actor's engine on a GPU: log-probabilities and gradient against the CPU's, projection, memory, tokens per second.

    python -m benchmarks.gpu.engine FOLDER --tokenizer data/micro/model --adaptation lora|full [--device cuda]

The model has 1e8 random weights and the architecture of Llama; FOLDER gets it once. A second process computes the same
on the CPU in float32. Then updates on the device, plain and protected, with the settings of `platform=gpu_1x8`.
"""

import argparse
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from benchmarks.gpu.findings import Findings
from recipe.capacity import ADAPTATIONS

SHAPE: dict[str, Any] = {
    "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 12,
    "num_key_value_heads": 4, "tie_word_embeddings": True, "max_position_embeddings": 2048, "initializer_range": 0.04,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of a model whose tokenizer to take")
    parser.add_argument("--adaptation", choices=ADAPTATIONS, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a trial without a GPU")
    parser.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"])
    parser.add_argument("--reference", type=Path, help="only compute this file, on the CPU")
    options = parser.parse_args()
    on_cpu = options.device == "cpu" or options.reference is not None
    join_process_group(options.folder, on_cpu, "reference" if options.reference else options.adaptation)
    from benchmarks.gpu import updates  # verl reads its platform at its import

    model = random_model(options.folder / f"model{options.layers}", options.tokenizer, options.layers)
    if options.reference:
        torch.save(updates.first_update(updates.built(model, options.adaptation, on_cpu)), options.reference)
        return
    findings = Findings(options.folder, f"engine_{options.adaptation}")
    reference = options.folder / f"reference_{options.adaptation}.pt"
    again = [sys.executable, "-m", "benchmarks.gpu.engine", *sys.argv[1:], "--reference", str(reference)]
    subprocess.run(again, check=True)
    worker = updates.built(model, options.adaptation, on_cpu)
    updates.compare(updates.first_update(worker), torch.load(reference), findings)
    peaks = updates.measure(worker, findings, on_cpu)
    if not on_cpu:
        updates.compare_memory(model, options.adaptation, peaks, findings)


def join_process_group(folder: Path, on_cpu: bool, name: str) -> None:
    """The environment of one rank, as Ray would give it. Before verl is imported, which reads its platform then."""
    store = folder / f"store_{name}"
    store.unlink(missing_ok=True)
    os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", RANK="0", WORLD_SIZE="1", WG_BACKEND="ray")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", DIST_INIT_METHOD=f"file://{store.absolute()}")
    if on_cpu:
        os.environ["VERL_PLATFORM"] = "cpu"


def random_model(folder: Path, tokenizer: Path, layers: int) -> Path:
    """A folder with random weights and this tokenizer, made once."""
    if not (folder / "config.json").exists():
        words = AutoTokenizer.from_pretrained(tokenizer)
        torch.manual_seed(0)
        config = LlamaConfig(
            **SHAPE | {"num_hidden_layers": layers},
            vocab_size=64 * math.ceil(len(words) / 64),
            eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id,
        )  # fmt: skip
        LlamaForCausalLM(config).save_pretrained(folder)
        words.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
