"""An asynchronous trainer of ours is accepted with what it serves, and refused with the rest, each with its reason."""

import pytest

from recipe.checks import asynchronous, combinations
from recipe.records.run_directory import RunDirectory
from tests.composing import composed

pytestmark = pytest.mark.slow

ASYNC = "trainer.v1.trainer_mode=skillcredit_colocate_async"
STAGES = ["protocol=sequential", "projection=qp"]
TWO_RANKS, TWO_STEPS = "trainer.n_gpus_per_node=2", "actor_rollout_ref.actor.ppo_mini_batch_size=8"
SOLUTIONS = "projection.constraint_source=solutions"


def found(*words: str) -> list[str]:
    run, config = RunDirectory("nowhere"), composed("experiment=quickstart", *words)
    return [str(problem) for check in (combinations, asynchronous) for problem in check.check(config, run)]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["credit=counterfactual", *STAGES],
        ["credit=counterfactual", *STAGES, SOLUTIONS, TWO_RANKS, TWO_STEPS],
        ["projection=qp", TWO_STEPS],
        ["protocol=curriculum", "projection=qp", "penalty=l2", "penalty.strength=1"],
    ],
)
def test_stages_credit_projection_and_penalties_are_accepted(words: list[str]) -> None:
    assert found(ASYNC, *words) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["failures.share=0.25"], "drawn a batch before the answers by which failures.share decides"),
        (["protocol=sequential", "penalty=ewc", "penalty.strength=1"], "by which penalty=ewc decides"),
        (["credit=counterfactual", "credit.methods=[resample]"], "with other weights than they were sampled with"),
        (
            [
                "credit=counterfactual",
                "credit.mapping=values",
                "credit.max_probability=0.9",
                "actor_rollout_ref.rollout.calculate_log_probs=false",
            ],
            "probabilities by the weights that sampled",
        ),
        ([*STAGES, TWO_RANKS], "a failed group changes how many of a batch are memory prompts"),
        ([*STAGES, TWO_STEPS], "a failed group changes how many of a batch are memory prompts"),
        (["adaptation=full"], "nothing would notice an engine that answers with other weights"),
        (["actor_rollout_ref.rollout.tensor_model_parallel_size=2"], "nothing would notice an engine"),
        (["platform=gpu_1x8"], "nothing would notice an engine"),
    ],
)
def test_what_it_cannot_serve_is_refused_with_the_reason(words: list[str], reason: str) -> None:
    (problem,) = found(ASYNC, *words)
    assert reason in problem
    assert "[trainer.v1.trainer_mode] -> " in problem


def test_engines_of_gpus_are_accepted_where_they_compare_whole_adapters() -> None:
    words = [ASYNC, "platform=gpu_1x8", f"+{asynchronous.EXTENSION_KEY}={asynchronous.EXTENSION}"]
    assert found(*words) == []
    (problem,) = found(*words, "actor_rollout_ref.rollout.tensor_model_parallel_size=2")
    assert f"with +{asynchronous.EXTENSION_KEY}={asynchronous.EXTENSION}" in problem


AHEAD, LIMIT = "trainer.v1.colocate_async.num_warmup_batches", "trainer.v1.sampler.max_off_policy_threshold"


@pytest.mark.parametrize(("ahead", "limit"), [(1, 1), (2, 2), (1.5, 2), (8, 8)])
def test_planned_prompts_that_would_be_dropped_before_their_turn_are_refused(ahead: float, limit: int) -> None:
    drawn = ASYNC, f"{AHEAD}={ahead}", f"{LIMIT}={limit}"
    (problem,) = found(*drawn, *STAGES)
    assert "lose their prompts" in problem
    assert f"[{LIMIT}] -> " in problem
    assert found(*drawn) == []
    assert found(*drawn, *STAGES, "trainer.v1.sampler.max_off_policy_strategy=wait") == []
    assert found(ASYNC, f"{AHEAD}={ahead}", f"{LIMIT}={limit + 1}", *STAGES) == []
    assert found(ASYNC, f"{AHEAD}={ahead}", f"{LIMIT}=null", *STAGES) == []


SEPARATE = "trainer.v1.trainer_mode=skillcredit_separate_async"
ROLLOUT, MODE = "actor_rollout_ref.rollout", "trainer.v1.separate_async"
UPDATES = f"{MODE}.parameter_sync_step=2"
MICRO = f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"


def test_its_mode_alone_chooses_engines_apart_with_whole_weights() -> None:
    config = composed("experiment=quickstart", SEPARATE)
    assert not config.actor_rollout_ref.hybrid_engine
    assert config.actor_rollout_ref.model.lora.merge
    for other in ("skillcredit", "skillcredit_colocate_async", "unknown"):
        config = composed("experiment=quickstart", f"trainer.v1.trainer_mode={other}")
        assert config.actor_rollout_ref.hybrid_engine
        assert not config.actor_rollout_ref.model.lora.merge


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["credit=counterfactual", *STAGES],
        ["credit=counterfactual", *STAGES, SOLUTIONS, TWO_RANKS, TWO_STEPS, UPDATES, f"{MICRO}=32"],
        ["adaptation=full", "projection=qp", TWO_STEPS, UPDATES],
        ["adaptation=full", "actor_rollout_ref.model.lora.merge=false"],
    ],
)
def test_engines_apart_serve_credit_projection_and_several_updates_of_a_step(words: list[str]) -> None:
    assert found(SEPARATE, *words) == []


@pytest.mark.parametrize(
    ("words", "where", "reason"),
    [
        (["actor_rollout_ref.model.lora.merge=false"], "actor_rollout_ref.model.lora.merge", "base weights alone"),
        (["actor_rollout_ref.hybrid_engine=true"], "actor_rollout_ref.hybrid_engine", "unchecked"),
        ([f"{ROLLOUT}.checkpoint_engine.backend=nccl"], "trainer.v1.trainer_mode", "nothing would notice an engine"),
        ([f"{ROLLOUT}.checkpoint_engine.backend=naive"], "trainer.v1.trainer_mode", "nothing would notice an engine"),
        ([f"{ROLLOUT}.tensor_model_parallel_size=2"], "trainer.v1.trainer_mode", "nothing would notice an engine"),
        (["platform=gpu_1x8", f"{ROLLOUT}.nnodes=1"], "trainer.v1.trainer_mode", "nothing would notice an engine"),
        ([f"{ROLLOUT}.nnodes=0"], f"{ROLLOUT}.nnodes", "no engine"),
        ([f"{ROLLOUT}.nnodes=2"], f"{ROLLOUT}.nnodes", "does not reach engines on other machines"),
        ([f"{MODE}.hybrid_rollout.enable_switch=true"], f"{MODE}.hybrid_rollout.enable_switch", "ignores it"),
        ([UPDATES], f"{MODE}.parameter_sync_step", "each of one mini-batch"),
        ([TWO_STEPS], f"{MODE}.parameter_sync_step", "each of one mini-batch"),
        ([*STAGES, UPDATES, TWO_STEPS], "trainer.v1.trainer_mode", "must divide over ranks and optimiser steps"),
        (["failures.share=0.25"], "trainer.v1.trainer_mode", "by which failures.share decides"),
        ([f"{MICRO}=96"], MICRO, "whose log-probabilities verl computes by themselves"),
    ],
)
def test_what_engines_apart_cannot_serve_is_refused_with_the_reason(words: list[str], where: str, reason: str) -> None:
    (problem,) = found(SEPARATE, *words)
    assert reason in problem
    assert f"[{where}] -> " in problem


def test_the_synchronous_trainer_is_not_asked() -> None:
    assert found("failures.share=0.25", "adaptation=full") == []
