"""The configurations of paper B compose, match the typed settings, and mean what their names say."""

from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy

import configs
from recipe.checks import combinations, machine, protocol
from recipe.records.run_directory import RunDirectory
from recipe.settings import SettingsError, read_settings
from recipe.train import set_steps
from tests.composing import composed

pytestmark = pytest.mark.slow  # each composes a configuration

FOLDER = Path(configs.__path__[0])
RUN = RunDirectory("nowhere")  # the protocol check does not open it
# Each baseline with one projection, so that one composition tests two files.
ARMS = {
    "kl": "qp",
    "entropy": "measure",
    "ppo": "off",
    "reinforce": "off",
    "replay": "pcgrad",
    "refresh": "sequential_margin",
    "review": "measure",
    "l2": "off",
    "ewc": "qp",
    "rehearsal": "agem",
}
# Arms with protection, and their choice of the projection's method, source and space.
PROTECTING = {
    "sequential_margin": ("sequential_margin", "rollouts", "displacement"),
    "pcgrad": ("pcgrad", "rollouts", "displacement"),
    "qp_rollouts": ("qp", "rollouts", "displacement"),
    "qp_solutions": ("qp", "solutions", "displacement"),
    "qp_both": ("qp", "both", "displacement"),
    "trigger_forgetting": ("qp", "solutions", "displacement"),
    "qp_gradient": ("qp", "solutions", "gradient"),
    "measured": ("measure", "solutions", "displacement"),
    "pcgrad_solutions": ("pcgrad", "solutions", "displacement"),
    "sequential_margin_solutions": ("sequential_margin", "solutions", "displacement"),
    "agem_solutions": ("agem", "solutions", "displacement"),
    "random_gradients": ("qp", "solutions", "displacement"),
    "closed_loop": ("qp", "solutions", "displacement"),
    "closed_loop_adam": ("qp", "solutions", "displacement"),
    "credit_closed_loop": ("qp", "solutions", "displacement"),
}
CREDIT = {"delete", "truncate", "shapley", "shuffled", "inverted"}  # test_paper_a.py
# test_credit_study.py
CREDIT |= {"credit", "credit_shuffled", "partial", "credit_turns", "credit_truncate", "credit_both"}
CREDIT |= {"vineppo", "spo", "gigpo"}


def paper_b(*words: str) -> DictConfig:
    return composed("experiment=paper_b", *words)


def names(group: str) -> set[str]:
    return {path.stem for path in (FOLDER / group).glob("[!_]*.yaml")}


def test_every_file_of_the_groups_is_composed_here():
    assert names("arm") == {*ARMS, *PROTECTING, *CREDIT, "grpo", "weak_judge", "worst_skill"}
    assert names("penalty") == {"off", "l2", "ewc", "rehearsal"}
    assert names("protocol") == {"mixed", "sequential", "curriculum"}


def test_arms_that_compare_the_method_of_qp_solutions_have_its_epsilon():
    arms = ("qp_solutions", "sequential_margin_solutions", "trigger_forgetting", "random_gradients")
    assert len({paper_b(f"arm={arm}").projection.epsilon for arm in arms}) == 1


@pytest.mark.parametrize("name", sorted(names("projection") - set(ARMS.values())))
def test_a_projection_that_no_baseline_has_is_the_method_of_its_name(name: str):
    assert read_settings(paper_b(f"projection={name}")).projection.method == {"torchjd": "UPGrad"}.get(name, name)


@pytest.mark.filterwarnings("ignore:Disabled critic")
@pytest.mark.parametrize("baseline", ARMS)
def test_a_baseline_differs_from_plain_grpo_in_what_it_is_named_for(baseline: str):
    config = paper_b(f"arm={baseline}", f"projection={ARMS[baseline]}")
    settings = read_settings(config)
    actor = config.actor_rollout_ref.actor
    found = {
        "kl": actor.use_kl_loss and need_reference_policy(config),
        "entropy": actor.entropy_coeff > 0,
        "ppo": need_critic(config),
        "reinforce": config.algorithm.adv_estimator.startswith("reinforce"),
        "replay": settings.protocol.replay_share > 0 and settings.protocol.replay_from == "store",
        "review": settings.protocol.replay_share > 0 and settings.protocol.replay_from == "mastered",
        "refresh": settings.protocol.refresh_steps > 0,
        "l2": settings.penalty.kind == "l2",
        "ewc": settings.penalty.kind == "ewc",
        "rehearsal": settings.penalty.kind == "rehearsal",
    }
    assert {name for name, differs in found.items() if differs} == {baseline}
    assert settings.projection.method == ARMS[baseline]
    assert protocol.check(config, RUN) == []


@pytest.mark.filterwarnings("ignore:Disabled critic")
@pytest.mark.parametrize("arm", ["ppo", "reinforce"])
@pytest.mark.parametrize(
    "words", [["experiment=paper_b"], ["experiment=paper_b", "platform=gpu_1x8"], ["experiment=paper_b_real"]]
)
def test_another_estimator_than_grpos_is_accepted_by_verl(words: list[str], arm: str, tiny_suite: Path, tmp_path: Path):
    path = f"{tiny_suite}/initial_model"
    files = ["data.train_files=t", "data.val_files=v", "skills.names=[a,b,c]", "protocol.skill_sequence=[a,b,c]"]
    config = composed(*words, f"arm={arm}", f"actor_rollout_ref.model.path={path}", *files)
    assert combinations.check_rules(config, RunDirectory(tmp_path)) == []
    assert need_critic(config) == (arm == "ppo")
    assert arm != "ppo" or config.critic.model.path == path


def test_the_micro_suite_can_be_run_on_gpus(tiny_suite: Path, tmp_path: Path):
    config = paper_b("arm=qp_both", "platform=gpu_1x8", f"actor_rollout_ref.model.path={tiny_suite}/initial_model")
    run = RunDirectory(tmp_path)
    assert machine.check_memory(config, run) == protocol.check(config, run) == []


def test_the_worst_skill_gets_more_prompts_in_mixed_batches_only():
    protocol_of = read_settings(paper_b("arm=worst_skill", "protocol=mixed")).protocol
    assert (protocol_of.weights, protocol_of.every_skill) == ("worst", True)
    with pytest.raises(SettingsError, match="needs protocol=mixed"):
        read_settings(paper_b("arm=worst_skill"))


@pytest.mark.parametrize("arm", PROTECTING)
def test_an_arm_protects_by_what_it_is_named_for(arm: str):
    chosen = read_settings(paper_b(f"arm={arm}")).projection
    assert (chosen.method, chosen.constraint_source, chosen.space) == PROTECTING[arm]


def test_arms_of_the_closed_loop_differ_in_what_they_are_named_for():
    chosen = {
        arm: read_settings(paper_b(f"arm={arm}")) for arm in ("closed_loop", "closed_loop_adam", "credit_closed_loop")
    }
    assert {
        arm: (each.projection.closed_loop, each.projection.verify) for arm, each in chosen.items()
    } == dict.fromkeys(chosen, (True, True))
    assert {(each.projection.epsilon, each.projection.gain) for each in chosen.values()} == {(0.01, 1.0)}
    assert [each.projection.metric for each in chosen.values()] == ["euclidean", "adam", "euclidean"]
    assert [each.credit.kind for each in chosen.values()] == ["off", "off", "counterfactual"]
    assert read_settings(paper_b("arm=random_gradients")).projection.control == "random_signs"


def test_everything_that_is_drawn_at_random_follows_one_seed():
    config = paper_b("arm=grpo", "data.seed=3")
    actor = config.actor_rollout_ref
    assert (config.protocol.seed, actor.rollout.seed, actor.actor.data_loader_seed) == (3, 3, 3)


def test_stages_say_how_many_steps_a_run_has():
    config = paper_b("projection=qp")
    set_steps(config, read_settings(config))
    assert config.trainer.total_training_steps == 4 * 8
    assert config.trainer.total_epochs >= 4 * 8


def test_the_real_experiment_and_a_curriculum_are_typed():
    real = composed(
        "experiment=paper_b_real", "data.train_files=t", "data.val_files=v", "skills.names=[a,b,c]", "projection=qp"
    )
    settings = read_settings(real)
    assert settings.stages == [["a"], ["b"], ["c"]]
    assert (settings.protocol.stage_steps, settings.protocol.memory_per_protected) == (2000, 8)
    assert protocol.check(real, RUN) == []
    curriculum = paper_b("protocol=curriculum", "protocol.levels=[[write],[repair,trace]]")
    assert read_settings(curriculum).stages == [["write"], ["repair", "trace"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainer.test_freq": 7}, "no validation at the end of each stage of 8 steps"),
        ({"protocol.memory_per_protected": 6}, "leaves no new prompt to train on in stage 4"),
        ({"projection.when": "forgetting"}, "triggered by validations, but test_freq=8 gives none before a stage ends"),
        ({"projection.when": "forgetting", "trainer.test_freq": 4}, None),
        ({"projection.when": "forgetting", "projection.forgetting_accuracy": "training"}, None),
        ({"algorithm.adv_estimator": "gae"}, "gae scales advantages over the whole batch"),
        ({"algorithm.adv_estimator": "gae", "projection.constraint_source": "solutions"}, None),
        ({"algorithm.adv_estimator": "rloo"}, None),
        (
            {"actor_rollout_ref.actor.fsdp_config.model_dtype": "bfloat16"},
            "projection writes corrections that parameters in bfloat16 would round away",
        ),
        ({"actor_rollout_ref.actor.fsdp_config.model_dtype": "bfloat16", "projection.method": "measure"}, None),
        ({"actor_rollout_ref.actor.ppo_mini_batch_size": 8, "actor_rollout_ref.rollout.n": 1}, None),
        (
            {"actor_rollout_ref.actor.ppo_mini_batch_size": 8, "actor_rollout_ref.rollout.n": 1,
             "protocol.memory_per_protected": 1},
            "in stage 2 1 memory samples must divide over 1 ranks and 15 trained ones over 2",
        ),
    ],
)  # fmt: skip
def test_stages_that_cannot_be_run_are_refused_before_training(change: dict, message: str | None):
    changed = paper_b("projection=qp")
    for key, value in change.items():
        OmegaConf.update(changed, key, value, force_add=True)
    found = [str(problem) for problem in protocol.check(changed, RUN)]
    assert not found if message is None else message in found[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], None),
        (["data.train_batch_size=2"], "too small for a prompt of each of 4 skills"),
    ],
)
def test_batches_of_every_skill_that_cannot_be_made_are_refused(words: list[str], message: str | None):
    config = composed("experiment=quickstart", "protocol.every_skill=true", *words)
    found = [str(problem) for problem in protocol.check(config, RUN)]
    assert not found if message is None else message in found[0]


def test_in_protocol_mixed_too_forgetting_has_to_be_seen():
    config = composed("experiment=quickstart", "projection=qp", "projection.when=forgetting", "trainer.test_freq=-1")
    (problem,) = protocol.check(config, RUN)
    assert "triggered by validations, but test_freq=-1 gives none [trainer.test_freq]" in str(problem)
