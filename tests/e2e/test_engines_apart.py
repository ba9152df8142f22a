"""verl's trainer with engines apart builds both pools on a CPU; its engines get the trained weights, and say so.

Real: our trainer's start, Ray, verl's workers and manager of transfers, FSDP2, vLLM. No prompt is answered.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import output_with_ray

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]


def configured(folder: Path) -> Any:
    """The quickstart with engines apart on the supervised start, as `recipe.train` prepares it."""
    from omegaconf import OmegaConf, open_dict

    from recipe.train import make_paths_absolute
    from tests.composing import composed
    from tests.e2e.conftest import quickstart
    from workers.cpu.processor import settle_precision

    config = composed(
        *quickstart(ROOT / "data" / "e2e"), "trainer.v1.trainer_mode=skillcredit_separate_async",
        f"run.root={folder}", "run.name=r", "trainer.resume_mode=disable", "trainer.total_training_steps=1",
        "+actor_rollout_ref.rollout.engine_kwargs.vllm.num_gpu_blocks_override=256",
    )  # fmt: skip
    settle_precision(config, "run.precision")
    make_paths_absolute(config)
    with open_dict(config):
        config.run.directory = str(folder / "r")
    (folder / "r").mkdir()
    OmegaConf.resolve(config)
    return config


def main(folder: Path) -> None:
    """Print, as JSON, what the trainer noted of its transfers, and what it says of an engine with other weights."""
    import ray

    import recipe.training.register  # noqa: F401  (verl's platform named cpu)
    from recipe.records.run_directory import RunDirectory
    from recipe.runtime.ray_session import start_ray
    from recipe.training.asynchronous.trainer import SkillCreditSeparateTrainer
    from workers.digests.weights import SentWeights

    config, run = configured(folder), RunDirectory(folder / "r")
    start_ray(config, run)
    made: Any = SkillCreditSeparateTrainer(config)
    made.init()
    said = []
    for step in (1, 2):
        made.global_steps = step
        said.append(_error(made))
        made.standalone_checkpoint_manager.update_weights(step)
        made._require_trained_weights()
    (sent,) = ray.get(made.actor_rollout_wg.execute_checkpoint_engine(["sent"]))
    other = ray.put(SentWeights(2, sent.dtype, dict.fromkeys(sent.digests, "of another model")))
    made.actor_rollout_wg.execute_checkpoint_engine = lambda methods: [other]
    said.append(_error(made))
    compared = [event["compared"] for event in run.events() if event["event"] == "weights"]
    print(json.dumps({"compared": compared, "said": said, "sent": len(sent.digests)}))
    ray.shutdown()


def _error(made: Any) -> str:
    try:
        made._require_trained_weights()
    except Exception as error:
        return str(error)
    return ""


def test_the_engine_has_the_weights_that_were_sent_or_the_run_ends(micro_start: Path, tmp_path: Path):
    found = json.loads(output_with_ray("tests.e2e.test_engines_apart", tmp_path, seconds=1500).splitlines()[-1])
    assert found["compared"] == [found["sent"]] * 3
    assert found["sent"] > 20
    *not_sent, others = found["said"]
    for step, said in enumerate(not_sent, start=1):
        assert said == f"the engines were not sent the weights of step {step}, but those of step {step - 1} last"
    assert f"other weights than were trained ({found['sent']} of {found['sent']}: " in others


if __name__ == "__main__":
    main(Path(sys.argv[1]))
