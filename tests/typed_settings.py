"""Typed settings without Hydra: what the configuration files say is tested with the files."""

from collections.abc import Sequence

from recipe.settings import Settings

FEEDBACK = {"code_agent": "{test}", "sql_agent": "{result}"}


def settings(
    projection: dict | None = None, penalty: dict | None = None, names: Sequence[str] = ("a", "b", "c"), **protocol
) -> Settings:
    """Of a run that trains these skills one after another, with these values of the groups."""
    return Settings.model_validate(
        {
            "run": {
                "root": "o", "experiment": "e", "poll_interval": 1, "max_masked_share": 1, "generations_per_step": 0,
                "gpu_memory_gib": 80, "line_every_seconds": 1, "seeded_samples": False,
                "greedy_validation": False,
                "share_first_validation": False,
            },
            "skills": {"names": list(names)},
            "protocol": {"kind": "sequential", "stage_steps": 10, "memory_per_protected": 3} | protocol,
            "credit": {"kind": "off"},
            "projection": {"method": "qp"} | (projection or {}),
            "agents": {"max_turns": 1, "role": "user", "observation_characters": 1, "feedback": FEEDBACK},
            "failures": {"share": 0, "capacity": 1},
            "agop": {"every": 0, "parts": 2},
            "penalty": {"kind": "off"} | (penalty or {}),
            "sandbox": {"timeout": 1, "memory_mb": 64},
        }
    )  # fmt: skip
