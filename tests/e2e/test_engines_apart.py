"""verl's trainer with engines apart builds both pools on a CPU; its engines get the trained weights, and say so.

An answer that transfers of weights interrupt is continued. Real: our trainer's start, Ray, verl's workers and manager
of transfers, FSDP2, vLLM. Nothing is trained.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.processes import output_with_ray

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]
PROMPT, ANSWER, INTERRUPTIONS = [65, 66, 67], 400, 2


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
        "actor_rollout_ref.rollout.max_model_len=512",
    )  # fmt: skip
    settle_precision(config, "run.precision")
    make_paths_absolute(config)
    with open_dict(config):
        config.run.directory = str(folder / "r")
    (folder / "r").mkdir()
    OmegaConf.resolve(config)
    return config


def main(folder: Path) -> None:
    """Print, as JSON, what the trainer noted of its transfers, an answer that they interrupted, and its parts.

    And what it says of an engine with other weights.
    """
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
    answers = asyncio.run(interrupted(made))
    (sent,) = ray.get(made.actor_rollout_wg.execute_checkpoint_engine(["sent"]))
    other = ray.put(SentWeights(2, sent.dtype, dict.fromkeys(sent.digests, "of another model")))
    made.actor_rollout_wg.execute_checkpoint_engine = lambda methods: [other]
    said.append(_error(made))
    compared = [event["compared"] for event in run.events() if event["event"] == "weights"]
    print(json.dumps({"compared": compared, "said": said, "sent": len(sent.digests)} | answers))
    ray.shutdown()


async def interrupted(made: Any) -> dict[str, Any]:
    """An answer that transfers interrupted, its parts, and what each part's request draws when nothing interrupts it.

    A transfer waits for the first token of each request that the engine has, and the whole answer takes a second: so
    each transfer that follows its arrival finds it under way.
    """
    from verl.workers.rollout.llm_server import LLMServerClient

    parts, send = [], LLMServerClient.generate

    async def noted(client: Any, request_id: str, *, sampling_params: dict[str, Any], **given: Any) -> Any:
        asked = dict(sampling_params)
        output = await send(client, request_id, sampling_params=sampling_params, **given)
        if output.token_ids:  # what is stopped before its first token begins anew
            parts.append((list(given["prompt_ids"]), asked, list(output.token_ids)))
        return output

    given = {"seed": 11, "max_tokens": ANSWER, "ignore_eos": True, "logprobs": True}
    version = made.global_steps
    with patch.object(LLMServerClient, "generate", noted):
        answer = asyncio.create_task(made.get_llm_client().generate("r", prompt_ids=PROMPT, sampling_params=given))
        while len(parts) < INTERRUPTIONS and not answer.done():
            version += 1
            await asyncio.to_thread(made.standalone_checkpoint_manager.update_weights, version)
        found = await answer
    plain = made._servers.get_client(LLMServerClient)
    again = [
        await plain.generate("r", prompt_ids=before, sampling_params=asked | {"max_tokens": len(tokens)})
        for before, asked, tokens in parts
    ]
    return {
        "answer": found.token_ids, "log_probs": len(found.log_probs), "reason": found.stop_reason,
        "versions": [found.extra_fields["min_global_steps"], found.extra_fields["max_global_steps"]], "last": version,
        "parts": [(before, asked["seed"], tokens) for before, asked, tokens in parts],
        "again": [output.token_ids for output in again],
    }  # fmt: skip


def _error(made: Any) -> str:
    try:
        made._require_trained_weights()
    except Exception as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def found(micro_start: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("apart")
    return json.loads(output_with_ray("tests.e2e.test_engines_apart", folder).splitlines()[-1])


def test_the_engine_has_the_weights_that_were_sent_or_the_run_ends(found: dict[str, Any]):
    assert found["compared"] == [found["sent"]] * 3
    assert found["sent"] > 20
    *not_sent, others = found["said"]
    for step, said in enumerate(not_sent, start=1):
        assert said == f"the engines were not sent the weights of step {step}, but those of step {step - 1} last"
    assert f"other weights than were trained ({found['sent']} of {found['sent']}: " in others


def test_an_answer_that_transfers_interrupted_is_continued_from_its_last_token(found: dict[str, Any]):
    befores, seeds, tokens = zip(*found["parts"], strict=True)
    drawn = [token for part in tokens for token in part]
    assert found["answer"] == drawn
    assert (len(drawn), found["log_probs"], found["reason"]) == (ANSWER, ANSWER, "length")
    assert len(tokens) > INTERRUPTIONS
    assert list(befores) == [PROMPT + drawn[: len(before) - len(PROMPT)] for before in befores]
    assert len(set(seeds)) == len(tokens)
    assert list(tokens) == found["again"]  # the weights are the same, so each part is what its own seed draws
    first, last = found["versions"]
    assert 2 <= first < last == found["last"]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
