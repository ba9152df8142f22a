"""Updates of the actor's worker, plain and protected: what they compute, how fast, and in how much memory."""

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import no_padding_2_padding

from benchmarks.gpu import kernels
from benchmarks.gpu.findings import Findings
from recipe.capacity.memory_parts import GIB
from recipe.capacity.memory_plan import plan_memory
from recipe.capacity.model_shape import shape_of
from tests.composing import composed
from tests.workers.real_engine import actor_worker, update
from workers.constraints import HALF, SKILL, solution_batch
from workers.displacement import local_gradients
from workers.solution_store import StoredSolution, plain_solutions
from workers.update_request import PROTECTION

PROMPT, RESPONSE = 64, 192
SAMPLES, FEW = 64, 16  # of the timed updates, and of those that are compared with the CPU's
MICRO_BATCH = 16
REPEATS = 3
STORED = 16  # solutions of each protected skill
SKILLS = ("a", "b")
# The old log-probabilities below are no policy's, so ratios are far from 1.
UNCLIPPED = [f"actor_rollout_ref.actor.{key}=1e6" for key in ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c")]
PROTECTED = "projection.protected=[write,repair]"  # as many skills


def settings(model: Path, adaptation: str, on_cpu: bool) -> list[str]:
    """Overrides of the composed configuration."""
    platform = ["run.precision=float32"] if on_cpu else ["platform=gpu_1x8", "trainer.n_gpus_per_node=1"]
    return [
        *platform, *([] if on_cpu else kernels()), f"adaptation={adaptation}",
        f"actor_rollout_ref.model.path={model.absolute()}", "actor_rollout_ref.actor.use_dynamic_bsz=false",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={MICRO_BATCH}",
        f"data.max_prompt_length={PROMPT}", f"data.max_response_length={RESPONSE}",
        "data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.rollout.n=8",
        "actor_rollout_ref.actor.fsdp_config.param_offload=false",
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=false",
    ]  # fmt: skip


def built(model: Path, adaptation: str, on_cpu: bool) -> Any:
    """The actor's worker."""
    worker = actor_worker(str(model), *settings(model, adaptation, on_cpu), *UNCLIPPED)
    worker.engine_config.micro_batch_size_per_gpu = MICRO_BATCH
    return worker


def batch(count: int) -> Any:
    """Random answers as one rank's share of an update, which makes the solutions of the protected skills unlikely.

    So a protected update has something to correct.
    """
    stored = [one for skill in range(1, len(SKILLS) + 1) for one in solutions(min(STORED, count // 4), seed=skill)]
    pushed_down = len(stored)
    stored += solutions(count - pushed_down, seed=0)
    data = solution_batch(stored, 1.0)
    lengths = [len(one.response) for one in stored]
    values: dict[str, list[float]] = {"advantages": [-0.7] * pushed_down + [1.0] * (count - pushed_down)}
    values["old_log_probs"] = [-4.0] * count
    for name, column in values.items():
        tokens = [torch.full((length,), value) for length, value in zip(lengths, column, strict=True)]
        data[name] = torch.nested.as_nested_tensor(tokens, layout=torch.jagged)
    data[SKILL], data[HALF] = torch.zeros(count, dtype=torch.long), torch.arange(count) % 2
    loader = {"epochs": 1, "seed": 0, "dataloader_kwargs": {"shuffle": False}, "calculate_entropy": False}
    tu.assign_non_tensor(data, temperature=1.0, mini_batch_size=count, global_batch_size=count, **loader)
    return data


def solutions(count: int, seed: int) -> list[Any]:
    """Stored answers of random tokens, each a quarter shorter than RESPONSE at most."""
    draw = torch.Generator().manual_seed(seed)

    def tokens(length: int) -> list[int]:
        found: list[int] = torch.randint(3, 250, (length,), generator=draw).tolist()
        return found

    lengths = [RESPONSE - row % (RESPONSE // 4) for row in range(count)]
    return [StoredSolution(tokens(PROMPT), tokens(length), [1] * length) for length in lengths]


def log_probs(worker: Any, data: Any) -> Tensor:
    """(tokens of all responses)."""
    lengths = data["responses"].offsets().diff()
    inputs = data.copy()
    tu.assign_non_tensor(inputs, compute_loss=False, micro_batch_size_per_gpu=MICRO_BATCH)
    padded = no_padding_2_padding(tu.get(worker.infer_batch(inputs), "log_probs"), data)
    return torch.cat([row[:length] for row, length in zip(padded, lengths, strict=True)]).float().cpu()


def first_update(worker: Any) -> dict[str, Tensor]:
    """Log-probabilities of FEW samples and the gradient of an update on them, flat, in float32 on the CPU."""
    found = {"log_probs": log_probs(worker, batch(FEW))}
    parameters = [one for one in worker.engine.module.parameters() if one.requires_grad]
    step = worker.engine.optimizer_step

    def kept() -> Any:
        found["gradient"] = torch.cat([one.float().flatten().cpu() for one in local_gradients(parameters)])
        return step()

    worker.engine.optimizer_step = kept
    update(worker, batch(FEW))
    worker.engine.optimizer_step = step
    return found


def compare(here: dict[str, Tensor], reference: dict[str, Tensor], findings: Findings) -> None:
    """bfloat16 on the device against float32 on the CPU."""
    findings.add("trained parameters", float(len(here["gradient"])))
    difference = (here["log_probs"] - reference["log_probs"]).abs()
    findings.add(
        "log-probabilities: mean difference from the CPU's in float32", float(difference.mean()), "nats", high=0.02
    )
    findings.add("the same, largest", float(difference.max()), "nats", high=0.2)
    cosine = torch.nn.functional.cosine_similarity(here["gradient"].double(), reference["gradient"].double(), dim=0)
    findings.add("gradient: cosine with the CPU's", float(cosine), low=0.99)
    norms = here["gradient"].norm() / reference["gradient"].norm()
    findings.add("gradient: norm, as a multiple of the CPU's", float(norms), low=0.98, high=1.02)


def measure(worker: Any, findings: Findings, on_cpu: bool) -> dict[str, int]:
    """Speed of passes and updates; a protected update keeps its constraints, in both metrics, and its verified line.

    Returns the peak of the device's memory in plain and in protected updates.
    """
    data = batch(SAMPLES)
    tokens = int(data["input_ids"].offsets()[-1])
    findings.add("log-probabilities", tokens / timed(lambda: log_probs(worker, data.copy()), on_cpu)[0], "tokens/s")
    plain, peak = timed(lambda: update(worker, data.copy()), on_cpu)
    findings.add("update", tokens / plain, "tokens/s")
    peaks = {"off": peak}
    for case, protection in protections().items():
        numbers: dict[str, float] = {}
        run = partial(_noted_update, worker, data, protection, numbers)
        seconds, peak = timed(run, on_cpu)
        peaks.setdefault("qp", peak)
        findings.add(f"update, {case} projection", seconds / plain, "plain updates")
        findings.add(f"{case}: skipped steps", numbers["projection/skipped_steps"], high=0)
        if case == "verified":
            findings.add("verified: steps that were undone", numbers["projection/undone_steps"])
            findings.add("verified: steps that were shrunk", numbers["projection/shrunk_steps"])
        else:
            findings.add(f"{case}: moved", numbers["projection/moved"], low=1e-3)
        for name in SKILLS:
            norm = numbers[f"projection/gradient_norm/{name}"]
            findings.add(f"{case}: norm of the gradient of skill {name}", norm, low=1e-12)
            if case == "verified":  # its bound follows the level, not epsilon alone
                above = numbers[f"projection/verified_level/{name}"] - numbers[f"projection/line/{name}"]
                findings.add(f"{case}: level of skill {name} above its line", above, "nats", low=-1e-9)
            else:
                change = numbers[f"projection/predicted_change/{name}"] / norm / numbers["projection/displacement_norm"]
                findings.add(f"{case}: change of skill {name}, as a share of the largest", change, low=-1e-5)
    return peaks


def _noted_update(worker: Any, data: Any, protection: dict[str, Any], numbers: dict[str, float]) -> None:
    numbers.update(update(worker, data.copy(), **{PROTECTION: protection}))


def protections() -> dict[str, dict[str, Any]]:
    """The trainer's requests by case, the plainest first."""
    constraints = [
        {"name": name, "skill": number, "solutions": plain_solutions(solutions(STORED, seed=number))}
        for number, name in enumerate(SKILLS, start=1)
    ]
    plain: dict[str, Any] = {"method": "qp", "epsilon": 0.0, "epsilon_kind": "absolute", "constraints": constraints}
    anchored = [one | {"anchored": 8} for one in constraints]
    return {
        "euclidean": plain,
        "adam": plain | {"metric": "adam"},
        "verified": plain | {"closed_loop": True, "tries": 3, "constraints": anchored},
    }


def timed(work: Callable[[], Any], on_cpu: bool) -> tuple[float, int]:
    """Median seconds of a few runs after the first, and the peak of the device's memory in them, in bytes."""
    found = []
    if not on_cpu:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(REPEATS + 1):
        begin = time.perf_counter()
        work()
        if not on_cpu:
            torch.cuda.synchronize()
        found.append(time.perf_counter() - begin)
    return statistics.median(found[1:]), 0 if on_cpu else torch.cuda.max_memory_allocated()


def compare_memory(model: Path, adaptation: str, peaks: dict[str, int], findings: Findings) -> None:
    """The peaks that torch allocated against the plans of recipe.memory."""
    total = torch.cuda.get_device_properties(0).total_memory
    for projection, peak in peaks.items():
        protected = [PROTECTED, "projection.constraint_source=solutions"] if projection == "qp" else []
        chosen = [f"projection={projection}", *protected, *settings(model, adaptation, on_cpu=False)]
        plan = plan_memory(composed("experiment=quickstart", *chosen), shape_of(str(model)), total / GIB)
        planned = {name: size for name, size in plan.layout.training.items() if name != "reserve"}
        parts = ", ".join(f"{name} {size / GIB:.2f}" for name, size in planned.items() if size)
        findings.add(f"projection {projection}: peak memory of updates", peak / GIB, "GiB")
        findings.add(
            f"projection {projection}: plan without its reserve", f"{sum(planned.values()) / GIB:.2f} GiB: {parts}"
        )
        findings.add(
            f"projection {projection}: peak, as a share of the plan", peak / sum(planned.values()), low=0.85, high=1.15
        )
