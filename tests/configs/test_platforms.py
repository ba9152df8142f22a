"""Every platform, model preset and adaptation composes, is valid for verl, and has a memory plan."""

import warnings
from pathlib import Path

import pytest
from omegaconf import DictConfig
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

import configs
from recipe.capacity.memory_plan import plan_memory
from recipe.capacity.model_shape import shape_of
from recipe.memory import WORKLOAD, presets
from tests.composing import composed

pytestmark = pytest.mark.slow

GPU_PLATFORMS = ("gpu_1x8", "gpu_ray")
# According to `recipe.memory`, these need a second node.
TOO_LARGE = {("gpu_1x8", "qwen2_5_32b", "full")}


def configuration(platform: str, preset: str, adaptation: str, *overrides: str) -> DictConfig:
    groups = [f"platform={platform}", f"model_preset={preset}", f"adaptation={adaptation}"]
    return composed(*groups, "run.experiment=test", *WORKLOAD, *overrides)


def accepted_by_verl(config: DictConfig) -> None:
    """verl's own checks, and its dataclasses for everything but the model (which would download it)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verl: GRPO has no critic
        validate_config(config, need_reference_policy(config), need_critic(config))
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    for engine in (
        config.actor_rollout_ref.actor.fsdp_config,
        config.actor_rollout_ref.ref.fsdp_config,
        config.critic.fsdp,
    ):
        assert omega_conf_to_dataclass(engine).strategy == "fsdp2"
    omega_conf_to_dataclass(config.algorithm)


def check(platform: str, preset: str, adaptation: str) -> None:
    config = configuration(platform, preset, adaptation)
    accepted_by_verl(config)
    plan = plan_memory(config, shape_of(config.actor_rollout_ref.model.path), 80)
    assert bool(plan.refusals) == ((platform, preset, adaptation) in TOO_LARGE), plan.refusals


def test_there_is_a_preset_for_each_model_that_the_documentation_names() -> None:
    names = "qwen2_5_14b qwen2_5_32b qwen2_5_3b qwen2_5_7b qwen2_5_coder_7b qwen3_4b qwen3_8b"
    assert presets() == names.split()


@pytest.mark.parametrize("platform", GPU_PLATFORMS)
@pytest.mark.parametrize("adaptation", ["lora", "full"])
def test_a_7b_is_accepted_on_every_gpu_platform(platform: str, adaptation: str) -> None:
    check(platform, "qwen2_5_7b", adaptation)


@pytest.mark.parametrize("platform", GPU_PLATFORMS)
@pytest.mark.parametrize("preset", presets())
@pytest.mark.parametrize("adaptation", ["lora", "full"])
def test_every_combination_is_accepted(platform: str, preset: str, adaptation: str) -> None:
    check(platform, preset, adaptation)


def test_the_cpu_platform_is_accepted() -> None:
    micro_batches = (
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8",
    )
    accepted_by_verl(configuration("cpu", "qwen3_4b", "lora", *micro_batches))


def test_the_gpu_platform_turns_on_what_it_promises() -> None:
    config = configuration("gpu_1x8", "qwen2_5_7b", "lora")
    actor, model, rollout = (config.actor_rollout_ref[name] for name in ("actor", "model", "rollout"))
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node, config.trainer.device) == (1, 8, "cuda")
    assert (model.use_remove_padding, model.override_config.attn_implementation) == (True, "flash_attention_2")
    assert (actor.use_dynamic_bsz, rollout.log_prob_use_dynamic_bsz, actor.fsdp_config.strategy) == (
        True,
        True,
        "fsdp2",
    )
    assert (model.lora_rank, model.lora_alpha, model.target_modules) == (32, 32, "all-linear")
    assert (rollout.name, rollout.tensor_model_parallel_size, rollout.load_format) == ("vllm", 2, "auto")


@pytest.mark.parametrize(("platform", "seeded"), [("cpu", True), ("gpu_1x8", False), ("gpu_ray", False)])
def test_samples_have_seeds_where_they_cost_little_and_can_have_them_everywhere(platform: str, seeded: bool) -> None:
    assert composed(f"platform={platform}", "experiment=quickstart").run.seeded_samples is seeded
    assert composed(f"platform={platform}", "experiment=quickstart", "run.seeded_samples=true").run.seeded_samples


def test_several_nodes_join_a_running_cluster_and_one_node_starts_its_own() -> None:
    assert configuration("gpu_ray", "qwen2_5_7b", "lora").ray_kwargs.ray_init.address == "auto"
    assert configuration("gpu_1x8", "qwen2_5_7b", "lora").ray_kwargs.ray_init.address is None
    many = configuration("gpu_ray", "qwen2_5_7b", "lora", "trainer.nnodes=4")
    assert many.trainer.nnodes * many.trainer.n_gpus_per_node == 32


def test_full_fine_tuning_trains_everything_and_offloads_between_phases() -> None:
    config = configuration("gpu_1x8", "qwen2_5_7b", "full").actor_rollout_ref
    engine = config.actor.fsdp_config
    assert (config.model.lora_rank, config.rollout.load_format) == (0, "dummy")
    assert (engine.param_offload, engine.optimizer_offload) == (True, True)
    assert config.actor.optim.lr == 1e-6


def test_no_file_of_these_groups_goes_unloaded() -> None:
    root = Path(configs.__path__[0])
    assert {path.stem for path in (root / "platform").glob("*.yaml")} == {"cpu", *GPU_PLATFORMS}
    assert {path.stem for path in (root / "adaptation").glob("*.yaml")} == {
        "full",
        "lora",
        "lora_micro",
        "lora_small",
    }
