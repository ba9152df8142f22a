"""Time of the projection, in multiples of t = one read of the S + 1 gradients in the same run.

    OMP_NUM_THREADS=1 python -m benchmarks.projection
    python -m benchmarks.projection --device cuda --parameters 1e6 1e7 1e8

``trigger``: a step that violates nothing, Gram matrix of the constraints known (they serve several steps).
``qp, known gram``: a step that violates every constraint, Gram matrix known. ``qp``: the same, with the Gram matrix
computed. ``adam``: the same in Adam's metric, the first step of an update; ``adam, known``: a later step of it. ``adam
metric``: its diagonal from the optimiser's second moments, once per update. ``torchjd ...``: torchjd's aggregators on
the same rows, if installed. Ours run with in_place, as in the actor. Each figure is the median of alternating repeats,
with their range; on a CPU of processor seconds. ``--findings FOLDER`` also notes them for scripts/gpu_check.sh, with
the first-order change of the constraint that a projected step harms most.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from benchmarks.gpu.findings import Findings
from workers.projection import constraint_gram, project
from workers.safety.metric import adam_inverse_metric


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=float, nargs="+", default=[1e7])
    parser.add_argument("--skills", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--findings", type=Path, help="folder for benchmarks.gpu")
    arguments = parser.parse_args()
    findings = Findings(arguments.findings, "projection") if arguments.findings else None
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    print(f"{'P':>9} {'S':>2} {'t (ms)':>8}   multiples of t")
    for parameters in arguments.parameters:
        for skills in arguments.skills:
            times = measure(int(parameters), skills, arguments.device, arguments.repeats)
            read = statistics.median(times.pop("read"))
            if findings:
                least = least_change(int(parameters), skills, arguments.device)
                note(findings, f"{parameters:.0e} parameters, {skills} skills", times, read, least)
            multiples = ", ".join(
                f"{name} {statistics.median(values) / read:.2f} ({min(values) / read:.2f}-{max(values) / read:.2f})"
                for name, values in times.items()
            )
            print(f"{parameters:9.0e} {skills:2d} {1000 * read:8.2f}   {multiples}", flush=True)


def measure(parameters: int, skills: int, device: str, repeats: int) -> dict[str, list[float]]:
    """Seconds per repeat of each case."""
    generator = torch.Generator(device=device).manual_seed(0)
    constraints = torch.randn(skills, parameters, generator=generator, device=device)
    rows = [torch.randn(parameters, generator=generator, device=device), *constraints]
    allowed = constraints.sum(0)
    forbidden = -allowed
    gram = constraint_gram(constraints)
    parameter = torch.nn.Parameter(torch.zeros(parameters, device=device))
    optimizer = torch.optim.AdamW([parameter])
    parameter.grad = torch.randn(parameters, generator=generator, device=device)
    optimizer.step()
    inverse = (adam_inverse_metric(optimizer, [parameter]) or [])[0]
    known = project(forbidden, constraints, inverse_metric=inverse).gram

    cases: dict[str, Callable[[torch.Tensor], object]] = {
        "read": lambda step: [row.sum() for row in rows],
        "trigger": lambda step: project(allowed, constraints, gram=gram),
        "qp, known gram": lambda step: project(step, constraints, gram=gram, in_place=True),
        "qp": lambda step: project(step, constraints, in_place=True),
        "adam metric": lambda step: adam_inverse_metric(optimizer, [parameter]),
        "adam": lambda step: project(step, constraints, inverse_metric=inverse, in_place=True),
        "adam, known": lambda step: project(step, constraints, inverse_metric=inverse, gram=known, in_place=True),
        "sequential_margin": lambda step: project(step, constraints, method="sequential_margin", in_place=True),
        "pcgrad": lambda step: project(step, constraints, method="pcgrad", in_place=True),
    }
    cases |= _of_torchjd(constraints)
    step = torch.empty_like(forbidden)
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats + 1):
        for name, case in cases.items():
            step.copy_(forbidden).add_(rows[0])
            times[name].append(_seconds(lambda case=case: case(step), device))
    return {name: values[1:] for name, values in times.items()}


def least_change(parameters: int, skills: int, device: str) -> float:
    """The least change of a constraint by a projected step, in either metric, as a share of the largest possible."""
    generator = torch.Generator(device=device).manual_seed(0)
    constraints = torch.randn(skills, parameters, generator=generator, device=device)
    step = torch.randn(parameters, generator=generator, device=device) - constraints.sum(0)
    inverse = torch.rand(parameters, generator=generator, device=device) + 0.1
    found = []
    for metric in (None, inverse):
        moved = project(step.clone(), constraints, inverse_metric=metric, in_place=True).step
        found += [float(row.double().dot(moved.double()) / row.norm() / moved.norm()) for row in constraints]
    return min(found)


def note(findings: Findings, case: str, times: Mapping[str, list[float]], read: float, least: float) -> None:
    """One line for the guarantee and one for each multiple of t."""
    findings.add(f"{case}: least change of a constraint, as a share of the largest", least, low=-1e-5)
    for name, values in times.items():
        findings.add(f"{case}: {name}", statistics.median(values) / read, "reads")


def _of_torchjd(constraints: torch.Tensor) -> dict[str, Callable[[torch.Tensor], object]]:
    """torchjd's UPGrad and PCGrad on the same rows; empty if it is not installed."""
    try:
        from torchjd.aggregation import PCGrad, UPGrad
    except ImportError:
        return {}
    rows = torch.cat([constraints[:1], constraints])  # the first row is a placeholder for the step

    def aggregated(aggregator: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], object]:
        def case(step: torch.Tensor) -> object:
            rows[0] = step
            return aggregator(rows)

        return case

    return {"torchjd UPGrad": aggregated(UPGrad()), "torchjd PCGrad": aggregated(PCGrad())}


def _seconds(work: Callable[[], object], device: str) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    clock = time.process_time if device == "cpu" else time.perf_counter
    start = clock()
    work()
    if device != "cpu":
        torch.cuda.synchronize()
    return clock() - start


if __name__ == "__main__":
    main()
