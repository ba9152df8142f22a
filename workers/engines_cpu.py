"""verl's FSDP engines in its registry for device ``cpu`` (verl has them for cuda and npu only)."""

import torch
from transformers import AutoModelForTokenClassification
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead


class CpuValueEngine(FSDPEngineWithValueHead):
    """verl's critic with the attention that its configuration names: verl itself insists on flash-attention here."""

    def _build_module(self) -> torch.nn.Module:
        """The policy's body with one output a token; every rank loads all of it."""
        config = self.model_config.hf_config
        config.num_labels, config.classifier_dropout = 1, 0.0
        folder = str(self.model_config.local_path)
        module = AutoModelForTokenClassification.from_pretrained(folder, config=config, torch_dtype=torch.float32)
        if self.model_config.enable_gradient_checkpointing:
            module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return module


def register_fsdp_engines() -> None:
    """Enter them; does nothing when they are there already."""
    for model_type, engine in (("language_model", FSDPEngineWithLMHead), ("value_model", CpuValueEngine)):
        if "cpu" not in EngineRegistry._engines.get(model_type, {}).get("fsdp2", {}):
            EngineRegistry.register(model_type, ["fsdp", "fsdp2"], device="cpu")(engine)
