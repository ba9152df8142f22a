"""vLLM's worker on a CPU, for training."""

from vllm.v1.worker.cpu_worker import CPUWorker

from workers.cpu.sampling import InverseSampler


class TrainingCpuWorker(CPUWorker):
    """vLLM's CPU worker, whose seeded requests draw one random number per token."""

    def init_device(self) -> None:
        super().init_device()
        sampler = self.model_runner.sampler
        sampler.topk_topp_sampler = InverseSampler(sampler.logprobs_mode)
