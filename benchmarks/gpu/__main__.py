"""All checks of the GPU path on one machine, each in its own process with a time limit; then one table.

    python -m benchmarks.gpu [FOLDER] [--data data/micro] [--parts engine_lora training_full ...] [--device cuda]

FOLDER (default outputs/gpu_check) gets the log of each part, what it measured as JSON lines, and table.md. Ends with
status 1 if a part failed or a value is outside its bounds. With two or more GPUs the training runs on all of them,
which tests NCCL and FSDP2's shards, and once more with vLLM's tensor parallel size of two. Without the package
flash-attn: `+kernels=torch`.
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.gpu.findings import Findings, Measured, read
from recipe.capacity import ADAPTATIONS

ROOT = Path(__file__).resolve().parents[2]
ENGINE, TRAINING = "benchmarks.gpu.engine", "benchmarks.gpu.training"
PACKAGES = ("torch", "vllm", "verl", "ray", "transformers", "peft", "triton", "flash-attn")
LIMITS = {"engine": 240, "training": 420, "tensor": 420, "projection": 120}
"""Seconds of a part."""
GRACE = 60
"""Seconds that a part has to end after its limit."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "outputs" / "gpu_check")
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "micro", help="folder of recipe.micro_start")
    parser.add_argument("--parts", nargs="+", help="only these (default: all)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a trial without a GPU")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none")
    options = parser.parse_args()
    gpus = torch.cuda.device_count() if options.device == "cuda" else 1
    commands = commands_of(options.folder, options.data, options.device, max(gpus, 1))
    unknown = set(options.parts or []) - set(commands)
    if unknown:
        parser.error(f"unknown parts {', '.join(sorted(unknown))}: choose from {', '.join(commands)}")
    chosen = {part: command for part, command in commands.items() if part in (options.parts or commands)}
    if options.dry_run:
        print("\n".join(" ".join(command) for command in chosen.values()))
        return
    if not gpus:
        parser.error("torch finds no GPU: check nvidia-smi, or try the parts with --device cpu")
    options.folder.mkdir(parents=True, exist_ok=True)
    for part in ("machine", *chosen):
        (options.folder / f"{part}.jsonl").unlink(missing_ok=True)
    describe_machine(Findings(options.folder, "machine"))
    failures = [message for part, command in chosen.items() if (message := run(options.folder, part, command))]
    found = [one for part in ("machine", *chosen) for one in read(options.folder / f"{part}.jsonl")]
    text = table(found, failures)
    (options.folder / "table.md").write_text(text)
    print(text)
    sys.exit(1 if failures or not all(one.passed for one in found) else 0)


def commands_of(folder: Path, data: Path, device: str, gpus: int) -> dict[str, list[str]]:
    """The command of each part, the quickest first; on a power of two of the GPUs, which divides the batches."""
    gpus = 1 << (gpus.bit_length() - 1)
    found: dict[str, list[str]] = {}
    for kind in ADAPTATIONS:
        own = ["--adaptation", kind, "--device", device]
        engine = [sys.executable, "-m", ENGINE, str(folder), "--tokenizer", str(data / "model"), *own]
        training = [sys.executable, "-m", TRAINING, str(folder), "--data", str(data), "--gpus", str(gpus), *own]
        found |= {f"engine_{kind}": engine, f"training_{kind}": training}
    if gpus > 1:
        pairs = ["--gpus", str(gpus), "--adaptation", "full", "--device", device, "--tensor-parallel", "2"]
        found["tensor_parallel"] = [sys.executable, "-m", TRAINING, str(folder), "--data", str(data), *pairs]
    size = "1e8" if device == "cuda" else "1e6"
    module = [sys.executable, "-m", "benchmarks.projection", "--findings", str(folder)]
    found["projection"] = [*module, "--device", device, "--parameters", size, "--skills", "2", "4"]
    return found


def describe_machine(findings: Findings) -> None:
    """Processor, GPUs and versions."""
    findings.add("Python", platform.python_version())
    for name in PACKAGES:
        known = importlib.util.find_spec(name.replace("-", "_")) is not None
        findings.add(name, importlib.metadata.version(name) if known else "not installed")
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        findings.add(
            f"GPU {number}", f"{device.name}, {device.total_memory / 2**30:.0f} GiB, sm_{device.major}{device.minor}"
        )
    if torch.cuda.is_available():
        findings.add("CUDA of torch", str(torch.version.cuda))


def run(folder: Path, part: str, command: Sequence[str]) -> str:
    """Run a part, its output to a log; returns what went wrong, or nothing."""
    print(f"{part} ...", flush=True)
    log, begin = folder / f"{part}.log", time.time()
    limit = LIMITS[part.split("_")[0]]
    with log.open("w") as file:
        child = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
            end(child)
    print(f"  {time.time() - begin:.0f} s", flush=True)
    if status == 0:
        return ""
    reason = f"ran longer than {limit} s" if status is None else f"ended with status {status}"
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
    print(tail, flush=True)
    return f"{part} {reason}: {log}"


def end(child: subprocess.Popen[bytes]) -> None:
    """Ask a part to stop, which ends its Ray too; then kill what is left of its process group."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def table(found: Sequence[Measured], failures: Sequence[str]) -> str:
    """Markdown."""
    lines = ["|part|measured|value|must be|", "|---|---|---|---|"]
    for one in found:
        value = one.value if isinstance(one.value, str) else f"{one.value:.4g}"
        outside = "" if one.passed else " **outside**"
        lines.append(f"|{one.part}|{one.what}|{value} {one.unit}{outside}|{one.bounds}|")
    return "\n".join([*lines, "", *failures, ""])


if __name__ == "__main__":
    main()
