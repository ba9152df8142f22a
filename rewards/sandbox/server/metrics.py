"""`/metrics` in the Prometheus text format."""

from __future__ import annotations

from rewards.sandbox.inside.outcomes import OUTCOMES
from rewards.sandbox.isolation.layers import LAYERS
from rewards.sandbox.server.pool import Pool

_PREFIX = "sandbox_"


def render(pool: Pool) -> str:
    """Render all figures of a pool, grouped by metric family."""
    counters = pool.counters
    slot = pool.slots[0]
    by_outcome: list[tuple[str, float]] = [(f'outcome="{name}"', counters.outcomes.get(name, 0)) for name in OUTCOMES]
    by_layer: list[tuple[str, float]] = [(f'layer="{name}"', int(name in slot.active)) for name in LAYERS]
    families: list[tuple[str, str, str, list[tuple[str, float]]]] = [
        ("programs_total", "counter", "Programs started", [("", counters.programs)]),
        ("results_total", "counter", "Runs and cases by outcome class", by_outcome),
        ("execution_seconds_total", "counter", "Wall time of programs and cases", [("", round(counters.seconds, 6))]),
        ("rejected_total", "counter", "Requests answered with 429", [("", counters.rejected)]),
        ("retried_total", "counter", "Programs run again after a worker failed", [("", counters.retried)]),
        ("infrastructure_failures_total", "counter", "Programs that could not be run", [("", counters.failed)]),
        ("workers_replaced_total", "counter", "Workers that died or stalled", [("", counters.replaced)]),
        (
            "foreign_answers_total",
            "counter",
            "Answers of workers to another job, never delivered",
            [("", counters.foreign)],
        ),
        (
            "blamed_total",
            "counter",
            "Programs that broke the sandbox twice while a known good one passed",
            [("", counters.blamed)],
        ),
        ("preempted_total", "counter", "Programs preempted by short ones", [("", counters.preempted)]),
        ("workers", "gauge", "Maximum number of concurrent short programs", [("", pool.workers)]),
        ("slots", "gauge", "Worker processes, including those for long programs", [("", len(pool.slots))]),
        ("pending_programs", "gauge", "Programs running or waiting", [("", pool.pending)]),
        ("isolation_layer", "gauge", "1 where the layer is active", by_layer),
    ]
    lines = []
    for name, kind, text, samples in families:
        lines += [f"# HELP {_PREFIX}{name} {text}", f"# TYPE {_PREFIX}{name} {kind}"]
        lines += [
            f"{_PREFIX}{name}{{{labels}}} {value}" if labels else f"{_PREFIX}{name} {value}"
            for labels, value in samples
        ]
    return "\n".join(lines) + "\n"
