"""verl options that would bypass or change a part of ours are refused, each with its reason; others are accepted."""

import json
from pathlib import Path

import pytest
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

from recipe import preflight
from recipe.checks import asynchronous, combinations, machine, names
from recipe.records.run_directory import RunDirectory
from recipe.training.trainer import SkillCreditTrainer
from rewards.manager import SkillCreditRewardManager
from tests.composing import composed

pytestmark = pytest.mark.slow

ASYNC, DISTILLED = "trainer.v1.trainer_mode=colocate_async", "distillation.enabled=true"
MANAGER = "reward.reward_manager"
REWARD_MODEL = "reward.reward_model.enable=true"
OWN_POOL = "reward.reward_model.enable_resource_pool=true"
FILTERED = ["algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acc"]
FAILURES, REFILL = "failures.share=0.25", "trainer.v1.sampler.sync_refill_failed_groups=true"
LOSS, CORRECTION = combinations.LOSS_MODE, "algorithm.rollout_correction"
BYPASS, MEASURED = f"{CORRECTION}.bypass_mode=true", "actor_rollout_ref.rollout.calculate_log_probs=true"
TIS, ICEPOP = f"{CORRECTION}.rollout_is=token", f"{CORRECTION}.rollout_rs=token_k1"
UNMEASURED, ESTIMATOR = MEASURED.replace("true", "false"), "algorithm.adv_estimator"
CLOSED = ["projection=qp", "projection.closed_loop=true"]
VERIFIED = [*CLOSED, "projection.constraint_source=solutions", "projection.verify=true"]
FORGETTING = ["projection=qp", "projection.when=forgetting", "projection.forgetting_accuracy=training"]
MEAN = "actor_rollout_ref.actor.loss_agg_mode"
DR_GRPO = ["algorithm.norm_adv_by_std_in_grpo=false", f"{MEAN}=seq-mean-token-sum-norm"]
DAPO = [*FILTERED, "actor_rollout_ref.actor.clip_ratio_high=0.28", f"{MEAN}=token-mean"]
WITH_BOTH = [DR_GRPO, [TIS, MEASURED], [ICEPOP, MEASURED], [f"{LOSS}=gspo"], [f"{LOSS}=cispo"]]
WITH_BOTH += [[f"{ESTIMATOR}={name}"] for name in ("rloo", "opo")]
EVERY_SKILL = "protocol.every_skill=true"
FP16 = f"+{combinations.FSDP_DTYPE}=fp16"
SGLANG, SEEDED = "actor_rollout_ref.rollout.name=sglang", "run.seeded_samples=true"
DETERMINISTIC = "+actor_rollout_ref.rollout.engine_kwargs.sglang.enable_deterministic_inference=true"
FSDP1 = "actor_rollout_ref.actor.strategy=fsdp"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
EIGHT_BIT, SGD = f"{ACTOR}.optim.optimizer_impl=bitsandbytes.optim", f"{ACTOR}.optim.optimizer=SGD"
SEPARATE = "actor_rollout_ref.hybrid_engine=false"
OWN_SAMPLER = "trainer.v1.sampler.custom_sampler.path=mine.py"
NO_HOOKS = "a trainer without this plug-in's hooks"
NOT_OURS = "not this plug-in's reward manager"


class MyTrainer(SkillCreditTrainer):
    """A user's class with all of our hooks."""


class MyManager(SkillCreditRewardManager):
    """Likewise."""


def _refused(*words: str) -> list[str]:
    run = RunDirectory("nowhere")  # no combinations check opens it
    return [str(problem) for problem in combinations.check(composed("experiment=quickstart", *words), run)]


@pytest.mark.parametrize(
    ("words", "where", "reason"),
    [
        ([ASYNC], "trainer.v1.trainer_mode", NO_HOOKS),
        (["trainer.v1.trainer_mode=separate_async"], "trainer.v1.trainer_mode", NO_HOOKS),
        (["trainer.v1.trainer_mode=sync"], "trainer.v1.trainer_mode", NO_HOOKS),
        ([ASYNC, "projection=qp", "credit=counterfactual"], "trainer.v1.trainer_mode", NO_HOOKS),
        ([f"{MANAGER}.source=register", f"{MANAGER}.name=dapo"], MANAGER, NOT_OURS),
        ([f"{MANAGER}.source=register", f"{MANAGER}.name=no_such"], MANAGER, NOT_OURS),
        ([f"{MANAGER}.name=SkillCreditRewardManger"], MANAGER, NOT_OURS),
        ([f"{MANAGER}.module.path=pkg://no.such.module"], MANAGER, NOT_OURS),
        ([REWARD_MODEL], "reward.reward_model.enable", "fail at step 1"),
        ([REWARD_MODEL, OWN_POOL], "reward.reward_model.enable", "would be loaded and never used"),
        (["reward_model.enable=true"], "reward_model", "keys of older versions of verl"),
        (["reward_model.reward_manager=dapo"], "reward_model", "keys of older versions of verl"),
        (["reward_model.model.path=some/model"], "reward_model", "keys of older versions of verl"),
        (["custom_reward_function.path=mine.py"], "custom_reward_function", "keys of older versions of verl"),
        ([DISTILLED], "distillation.enabled", "counts the teacher's accelerators"),
        ([DISTILLED, "projection=qp", "credit=counterfactual"], "distillation.enabled", "gradient for the policy's"),
        ([*FILTERED, FAILURES], FILTERED[0][:-5], "failures.share plans whole batches"),
        ([*FILTERED, EVERY_SKILL], FILTERED[0][:-5], "protocol plans whole batches"),
        ([REFILL, FAILURES], REFILL[:-5], "failures.share plans whole batches"),
        ([REFILL, "protocol=sequential"], REFILL[:-5], "protocol plans whole batches"),
        (["data.gen_batch_size=1", FAILURES], "data.gen_batch_size", "failures.share plans whole batches"),
        ([SGLANG, SEEDED], SEEDED[:-5], "SGLang uses the seeds of samples in its deterministic mode alone"),
        ([*FILTERED, *CLOSED], FILTERED[0][:-5], "projection.closed_loop would take the rest's accuracy"),
        ([*FILTERED, *FORGETTING], FILTERED[0][:-5], "projection.forgetting_accuracy=training would take"),
        ([TIS, UNMEASURED], CORRECTION, "verl skips the correction"),
        ([BYPASS, TIS, MEASURED], BYPASS[:-5], "silently corrects nothing"),
        ([f"{LOSS}=bypass_mode"], BYPASS[:-5], "silently corrects nothing"),
        ([f"{LOSS}=geo_mean", "credit=counterfactual"], LOSS, "undoes what credit does"),
        ([f"{LOSS}=dro"], combinations.DRO_BETA, "fails in step 1"),
        ([f"{combinations.ROUTING}=true"], combinations.ROUTING, "ignores the experts"),
        *[([f"{ESTIMATOR}={name}"], ESTIMATOR, "would fail") for name in combinations.FAILING_ESTIMATORS],
        *[([f"{ESTIMATOR}={name}", *CLOSED], ESTIMATOR, "over the batch") for name in combinations.WHITENING],
        (["algorithm.use_pf_ppo=true"], "algorithm.use_pf_ppo", "ignores it"),
        ([f"+{ACTOR}.use_prefix_grouper=true"], f"{ACTOR}.use_prefix_grouper", "ignores it"),
        (["actor_rollout_ref.model.tiled_mlp.enabled=true"], "actor_rollout_ref.model.tiled_mlp.enabled", "ignores"),
        ([f"{ROLLOUT}.over_sample_rate=0.1"], f"{ROLLOUT}.over_sample_rate", "ignores it"),
        ([f"{ROLLOUT}.multi_stage_wake_up=true"], f"{ROLLOUT}.multi_stage_wake_up", "ignores it"),
        ([f"{ROLLOUT}.disaggregation.enabled=true"], f"{ROLLOUT}.disaggregation.enabled", "counts engines apart"),
        ([EIGHT_BIT, *VERIFIED], EIGHT_BIT.split("=")[0], "projection.verify reads"),
        ([SGD, "projection=qp", "projection.metric=adam"], SGD.split("=")[0], "projection.metric=adam needs"),
        ([SEPARATE], SEPARATE[:-6], "others ignore this key"),
        (["trainer.use_v1=false"], "trainer.use_v1", "none of this plug-in's hooks"),
        ([FSDP1, "projection=qp", "agop.every=2"], FSDP1[:-5], "projection, agop could not tell modules apart"),
        ([OWN_SAMPLER, FAILURES], "trainer.v1.sampler.custom_sampler", "failures.share plans whole batches"),
        ([FP16, "projection=qp"], combinations.FSDP_DTYPE, "projection would read gradients that verl scales"),
    ],
)
def test_what_verl_would_do_otherwise_in_silence_is_refused_with_the_reason(
    words: list[str], where: str, reason: str
) -> None:
    (problem,) = _refused(*words)
    assert reason in problem
    assert f"[{where}] -> " in problem


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["trainer.v1.trainer_mode=no_such_trainer"],  # recipe.checks.names reports it
        [f"{MANAGER}.module.path=pkg://{__name__}", f"{MANAGER}.name=MyManager"],
        [OWN_POOL],
        FILTERED,
        [*FILTERED, "projection=qp", "credit=counterfactual"],
        [*FILTERED, *CLOSED, "projection.constraint_source=solutions"],
        [f"{LOSS}=geo_mean", "projection=qp"],
        *[[*words, *CLOSED, "credit=counterfactual"] for words in WITH_BOTH],
        [*DAPO, "projection=qp", "credit=counterfactual"],
        [BYPASS, TIS, MEASURED, f"{LOSS}=bypass_mode"],
        [f"{LOSS}=dro", f"{combinations.DRO_BETA}=0.001", "credit=counterfactual", "projection=qp"],
        [REFILL],
        ["data.gen_batch_size=1"],
        [SEEDED],
        [SGLANG, "run.seeded_samples=false"],
        [SGLANG, SEEDED, DETERMINISTIC],
        ["data.gen_batch_size=16", FAILURES],
        [FP16, "credit=counterfactual"],
        [FP16.replace("fp16", "bf16"), "projection=qp"],
        [f"{ESTIMATOR}=gpg", "projection=qp", "credit=counterfactual"],
        [FSDP1, "credit=counterfactual"],
        [OWN_SAMPLER, "projection=qp"],
        [EIGHT_BIT, "projection=qp"],
        [SGD, *VERIFIED],
    ],
)
def test_what_goes_together_is_not_refused(words: list[str]) -> None:
    assert _refused(*words) == []


def test_a_trainer_that_extends_ours_has_its_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRAINER_REGISTRY, "mine", MyTrainer)
    assert _refused("trainer.v1.trainer_mode=mine") == []


def test_another_engine_has_to_be_installed_and_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, run = composed("experiment=quickstart", SGLANG, "run.seeded_samples=false"), RunDirectory("nowhere")
    (refusal,) = names.check_optional_packages(config, run)
    assert "the engine sglang is not installed" in str(refusal)
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert names.check_optional_packages(config, run) == []
    assert any("no run of this project has used sglang, only vllm" in note for note in machine.notes(config))


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["actor_rollout_ref.rollout.quantization=fp8"], "fp8"),
        (["actor_rollout_ref.actor.fsdp_config.qat.enable=true"], "qat"),
        ([], None),
    ],
)
def test_an_engine_with_quantized_weights_is_warned_of(words: list[str], name: str | None) -> None:
    warned = [note for note in machine.notes(composed("experiment=quickstart", *words)) if "quantized weights" in note]
    assert len(warned) == (name is not None)
    assert name is None or f"sampled from quantized weights ({name})" in warned[0]


def test_what_a_plan_does_not_count_and_nothing_compares_is_warned_of() -> None:
    def warnings(*words: str) -> str:
        return "\n".join(machine.notes(composed("experiment=quickstart", *words)))

    assert "two moments" in warnings(EIGHT_BIT)
    assert "two moments" in warnings(SGD)
    assert "two moments" not in warnings()
    compared, gpu = f"+{asynchronous.EXTENSION_KEY}={asynchronous.EXTENSION}", "platform=gpu_1x8"
    assert f"{compared} does" in warnings(gpu)
    assert "nothing compares" not in warnings(gpu, compared) + warnings(gpu, "adaptation=full") + warnings()


def test_a_mixture_of_experts_is_warned_of_as_untrained(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_moe", "num_experts": 128}))
    config = composed("experiment=quickstart", f"actor_rollout_ref.model.path={tmp_path}")
    assert "qwen3_moe is a mixture of experts: no plan covers it, no run here trained one" in machine.notes(config)[-1]


def test_all_that_does_not_go_together_is_said_at_once() -> None:
    found = _refused(ASYNC, f"{MANAGER}.source=register", f"{MANAGER}.name=dapo", REWARD_MODEL, *FILTERED, FAILURES)
    assert len(found) == 4


def test_preflight_asks(tiny_arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert preflight.main([*tiny_arguments, ASYNC]) == preflight.REFUSED
    printed = capsys.readouterr().out
    assert printed.count("FAILS") == 1
    assert NO_HOOKS in printed
