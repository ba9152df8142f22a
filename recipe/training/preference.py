"""Direct preference optimisation (Rafailov et al. 2023, arXiv 2305.18290) with LoRA and TRL, in TRL's environment.

``python -m recipe.training.preference SETTINGS.json``, as started by recipe.dpo. The reference is the model without
its adapter, so there is no second copy of the weights; ``precompute_reference`` also saves the reference's forward
passes during training and the memory of their activations. Imports nothing of this project, because TRL is installed
in an environment separate from verl's.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class DpoSettings:
    """model: Hugging Face folder. train_pairs, val_pairs: JSON lines with prompt, chosen and rejected, each a list of
    chat messages. out: folder of the merged model. log: JSON lines of the metrics. device: cpu or cuda. ranks:
    processes, one per GPU. batch_size: pairs per optimiser step over all ranks; micro_batch_size: pairs per forward
    pass of a rank.
    """

    model: str
    train_pairs: str
    val_pairs: str
    out: str
    log: str
    device: str = "cpu"
    ranks: int = 1
    beta: float = 0.1
    lr: float = 5e-6
    epochs: float = 1.0
    batch_size: int = 32
    micro_batch_size: int = 4
    max_length: int = 4096
    lora_rank: int = 16
    lora_alpha: int = 32
    precompute_reference: bool = False
    seed: int = 0

    @property
    def accumulated(self) -> int:
        """Forward passes of a rank per optimiser step."""
        return self.batch_size // (self.micro_batch_size * self.ranks)


def train(settings: DpoSettings) -> None:
    """Train on the pairs, log the reward accuracy on held-out pairs, and save the merged model."""
    from datasets import load_dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    on_gpu = settings.device == "cuda"
    out = Path(settings.out)
    arguments = DPOConfig(
        output_dir=str(out.with_name("checkpoints")),
        model_init_kwargs={"dtype": "bfloat16" if on_gpu else "float32"},
        beta=settings.beta,
        learning_rate=settings.lr,
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.micro_batch_size,
        per_device_eval_batch_size=settings.micro_batch_size,
        gradient_accumulation_steps=settings.accumulated,
        max_length=settings.max_length,
        precompute_ref_log_probs=settings.precompute_reference,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        gradient_checkpointing=on_gpu,
        gradient_checkpointing_kwargs={"use_reentrant": False},  # reentrant checkpointing reduces gradients twice
        lr_scheduler_type="cosine",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=settings.seed,
    )
    pairs = load_dataset("json", data_files={"train": settings.train_pairs, "val": settings.val_pairs})
    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    trainer = DPOTrainer(
        settings.model,
        args=arguments,
        train_dataset=pairs["train"],
        eval_dataset=pairs["val"],
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=settings.lora_rank, lora_alpha=settings.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    trainer.train()
    trainer.evaluate()
    if trainer.is_world_process_zero():
        save(trainer, tokenizer, out)
        Path(settings.log).write_text("".join(json.dumps(line) + "\n" for line in trainer.state.log_history))


def save(trainer: Any, tokenizer: Any, out: Path) -> None:
    """Save the merged model and its tokenizer; `out` appears only once they are complete."""
    partial = out.with_name(f".{out.name}.partial")
    trainer.model.merge_and_unload().save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.rename(out)


if __name__ == "__main__":
    train(DpoSettings(**json.loads(Path(sys.argv[1]).read_text())))
