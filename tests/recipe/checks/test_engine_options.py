"""What verl's engines ignore, compute wrongly or refuse at their start is refused before, with the reason."""

import pytest

from recipe.capacity.sizes import COUNTS, read_sizes
from recipe.checks import engines
from recipe.checks.combinations import check_rules
from recipe.records.run_directory import RunDirectory
from recipe.settings import SettingsError
from tests.composing import composed

pytestmark = pytest.mark.slow  # composes dozens of configurations

GPUS = ("experiment=gsm8k", "platform=gpu_1x8", "model_preset=qwen2_5_7b")
ATTENTION = f"{engines.MODEL}.override_config.attn_implementation"
ULYSSES = f"{engines.ACTOR}.ulysses_sequence_parallel_size"
IS = "algorithm.rollout_correction.rollout_is"


def found(*words: str) -> list[str]:
    return [str(problem) for problem in engines.check(composed(*GPUS, *words), RunDirectory("/nowhere"))]


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ([f"{ATTENTION}=sdpa", f"{ULYSSES}=2"], ATTENTION),
        ([f"{ATTENTION}=eager", f"{ULYSSES}=4"], ATTENTION),
        (["arm=ppo", "critic.strategy=megatron"], "critic.strategy"),
        ([f"{engines.ACTOR}.fsdp_config.dtype=float16"], f"{engines.ACTOR}.fsdp_config.dtype"),
        ([f"{engines.ACTOR}.fsdp_config.dtype=float32"], f"{engines.ACTOR}.fsdp_config.dtype"),
        ([f"{engines.MODEL}.lora.rank=16"], f"{engines.MODEL}.lora.rank"),
        ([f"{engines.MODEL}.lora_adapter_path=/no/folder", "adaptation=lora"], f"{engines.MODEL}.lora_adapter_path"),
        ([f"{engines.MODEL}.lora_adapter_path=.", "adaptation=full"], f"{engines.MODEL}.lora_adapter_path"),
        ([f"{engines.ROLLOUT}.log_prob_use_dynamic_bsz=false"], f"{engines.ACTOR}.use_dynamic_bsz"),
        ([f"{engines.ACTOR}.policy_loss.loss_mode=nothing"], f"{engines.ACTOR}.policy_loss.loss_mode"),
        (["algorithm.adv_estimator=nothing"], "algorithm.adv_estimator"),
        ([f"{IS}=nothing"], IS),
        ([f"{engines.ACTOR}.optim.optimizer=Nothing"], f"{engines.ACTOR}.optim.optimizer"),
        ([f"{engines.ROLLOUT}.dtype=fp8"], f"{engines.ROLLOUT}.dtype"),
        (["actor_rollout_ref.nccl_timeout=0"], "actor_rollout_ref.nccl_timeout"),
        (["actor_rollout_ref.nccl_timeout=null"], "actor_rollout_ref.nccl_timeout"),
        ([f"{engines.ROLLOUT}.agent.num_workers=0"], f"{engines.ROLLOUT}.agent.num_workers"),
        *[([f"{key}=0"], key) for key in COUNTS if not key.startswith("critic")],
    ],
)
def test_an_option_is_refused_with_its_key(words: list[str], key: str) -> None:
    problems = found(*words)
    assert any(f"[{key}] -> " in problem for problem in problems), problems


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["arm=ppo"],
        [f"{ULYSSES}=2"],
        [f"{ULYSSES}=2", "+kernels=torch"],
        [f"{ATTENTION}=sdpa"],
        [f"{IS}=token"],
        [f"{engines.ACTOR}.policy_loss.loss_mode=gspo"],
        [f"{engines.MODEL}.lora_adapter_path=.", "adaptation=lora"],
        [f"{engines.MODEL}.lora_adapter_path=an/adapter-of-the-hub", "adaptation=lora"],
    ],
)
def test_what_the_engines_can_do_is_accepted(words: list[str]) -> None:
    assert found(*words) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([f"{engines.ACTOR}.loss_agg_mode=nothing"], "Invalid loss_agg_mode: nothing"),
        ([f"{engines.ROLLOUT}.pipeline_model_parallel_size=2"], "pipeline_model_parallel_size > 1"),
        ([f"{engines.ROLLOUT}.expert_parallel_size=4"], "expert_parallel_size must be equal"),
        ([f"{engines.ACTOR}.use_dynamic_bsz=false"], "ppo_micro_batch_size_per_gpu"),
    ],
)
def test_what_verl_says_of_a_configuration_is_one_finding(words: list[str], says: str) -> None:
    (problem,) = check_rules(composed(*GPUS, *words), RunDirectory("/nowhere"))
    assert says in str(problem)


def test_a_plan_of_nothing_is_a_message() -> None:
    with pytest.raises(SettingsError, match=r"trainer\.nnodes=0: set at least 1"):
        read_sizes(composed(*GPUS, "trainer.nnodes=0"))
    with pytest.raises(SettingsError, match="does not know the dtype fp8"):
        read_sizes(composed(*GPUS, f"{engines.ROLLOUT}.dtype=fp8"))
