"""verl's part of a vLLM worker on any device, with an adapter that can be compared with the trained one."""

from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from workers.digests.adapter import HeldAdapter


class ComparedAdapterExtension(HeldAdapter, vLLMColocateWorkerExtension):
    """For ``engine_kwargs.vllm.worker_extension_cls``: each transfer of an adapter is compared, or the run ends."""
