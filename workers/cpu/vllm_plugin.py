"""Entry point ``vllm.platform_plugins``: vLLM asks it in every process which platform it should be. Keep it light."""

import os


def platform() -> str | None:
    """Our CPU platform on verl's platform ``cpu``; None anywhere else, where vLLM decides."""
    if os.environ.get("VERL_PLATFORM", "").strip().lower() != "cpu":
        return None
    return "workers.cpu.vllm_platform.TrainingCpuPlatform"
