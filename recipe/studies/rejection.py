"""Rejection sampling: supervised training on the accepted answers of an evaluation."""

from recipe.runtime.options import RejectionOptions
from recipe.studies.steps import Steps, last_checkpoint


def learn_accepted(steps: Steps[RejectionOptions], model: str, samples: str, out: str, *overrides: str) -> None:
    """Train `model` on the accepted answers of the evaluation in `samples`; the result is OUT/model."""
    given = steps.options
    steps.module(
        "recipe.sft", f"sft_experiment={given.sft_experiment or 'verified'}", f"sft_platform={steps.serving}",
        f"model.path={model}", f"verified.evaluations=[{samples}]", f"trainer.default_local_dir={out}/sft",
        *overrides, *given.sft.split(),
    )  # fmt: skip
    # In two steps: a copy that was stopped is not taken for the model.
    steps.run("cp", "-rT", last_checkpoint(f"{out}/sft"), f"{out}/model.partial")
    steps.run("mv", "-T", f"{out}/model.partial", f"{out}/model")
