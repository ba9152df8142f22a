"""Entry point ``vllm.platform_plugins``: vLLM asks it in every process which platform it should be. Keep it light."""

import os

from workers.cpu.collection import collect_rarely


def platform() -> str | None:
    """Our CPU platform on verl's platform ``cpu``; None anywhere else, where vLLM decides."""
    if os.environ.get("VERL_PLATFORM", "").strip().lower() != "cpu":
        return None
    collect_rarely()  # Ray starts the engine's server, but not the engine
    return "workers.cpu.vllm_platform.TrainingCpuPlatform"
