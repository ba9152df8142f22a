"""vLLM's CPU platform with our LoRA wrapper and worker; found through the entry point ``vllm.platform_plugins``."""

from typing import TYPE_CHECKING

from vllm.platforms.cpu import CpuPlatform

if TYPE_CHECKING:  # vllm.config asks for the platform while it is imported
    from vllm.config import VllmConfig


class TrainingCpuPlatform(CpuPlatform):
    """vLLM's CPU platform for a training run, in which all rows use the policy's adapter."""

    @classmethod
    def check_and_update_config(cls, vllm_config: "VllmConfig") -> None:
        """vLLM's own settings for a CPU, with our worker unless another one is named."""
        default = vllm_config.parallel_config.worker_cls == "auto"
        super().check_and_update_config(vllm_config)
        if default:
            vllm_config.parallel_config.worker_cls = "workers.cpu.vllm_worker.TrainingCpuWorker"

    @classmethod
    def get_punica_wrapper(cls) -> str:
        """The class that applies adapters."""
        return "workers.cpu.lora.OneAdapterPunicaWrapper"
