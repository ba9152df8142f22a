"""vLLM's CPU platform with our LoRA wrapper; vLLM finds it through the entry point ``vllm.platform_plugins``."""

from vllm.platforms.cpu import CpuPlatform


class OneAdapterCpuPlatform(CpuPlatform):
    """vLLM's CPU platform for a training run, in which all rows use the policy's adapter."""

    @classmethod
    def get_punica_wrapper(cls) -> str:
        """The class that applies adapters."""
        return "workers.cpu.lora.OneAdapterPunicaWrapper"
