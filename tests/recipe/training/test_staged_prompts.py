"""The trainer's batch in a protocol with stages: the schedule's rows, and the mask of memory rows."""

from types import SimpleNamespace
from typing import Any

import torch

from recipe.training.schedule import StepPrompts
from recipe.training.trainer import SkillCreditTrainer


def test_a_step_has_the_rows_of_the_schedule_and_knows_its_memory_prompts_by_name():
    trainer = SkillCreditTrainer.__new__(SkillCreditTrainer)
    trainer.global_steps = 5
    trainer.train_dataset = [{"extra_info": {"id": row}, "dummy_tensor": torch.tensor([row])} for row in range(9)]
    schedule: Any = SimpleNamespace(at=lambda step: StepPrompts([step, 7, 2], [False, False, True]))
    trainer.schedule = schedule
    batch = trainer._fetch_one_gen_batch()
    assert batch["dummy_tensor"].flatten().tolist() == [5, 7, 2]
    names = list(batch["uid"])
    assert all(isinstance(name, str) for name in names)
    assert len(set(names)) == 3
    assert trainer._memory_prompts == {names[2]}
