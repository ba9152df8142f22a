import pytest
from omegaconf import OmegaConf

from recipe.preflight import compose_training
from recipe.settings import CreditSettings, SettingsError, did_you_mean, read_settings
from tests.composing import composed

pytestmark = pytest.mark.slow

QUICKSTART = ["experiment=quickstart"]


def test_the_groups_of_the_quickstart_arrive_typed():
    settings = read_settings(composed(*QUICKSTART, "run.max_masked_share=0.25"))
    assert settings.run.max_masked_share == 0.25
    assert settings.run.experiment == "quickstart"
    assert settings.skills.names == ["write", "repair", "trace", "sql"]
    assert settings.credit.kind == "off"
    assert settings.projection.method == "off"


def test_an_unknown_key_of_a_file_is_refused_with_the_valid_ones():
    config = composed(*QUICKSTART, "credit=counterfactual")
    OmegaConf.set_struct(config, False)
    config.credit.strenght = 1.0
    with pytest.raises(SettingsError, match=r"credit\.strenght: no such key\. Did you mean strength\? Valid: ablation"):
        read_settings(config)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("credit.strength=-1", r"credit\.strength: .*greater than or equal to 0.*got -1"),
        ("credit.budget=0", r"credit\.budget: .*greater than or equal to 1.*got 0"),
        ("credit.methods=[guess]", r"credit\.methods\.0: .*'replace'.*'shapley', 'resample'.*got 'guess'"),
        ("credit.min_valid=1", r"credit\.min_valid: .*greater than or equal to 2.*got 1"),
        ("credit.min_valid=9", r"credit: .*min_valid=9 credits are more than a response can have.*budget=4"),
        ("credit.zero_advantage=3", r"credit\.zero_advantage: .*boolean"),
        ("run.max_masked_share=2", r"run\.max_masked_share: .*less than or equal to 1"),
        ("run.name='a b'", r"run\.name: .*pattern"),
        ("skills.names=[write,write]", "lists a skill twice"),
        ("skills.names=[write,mean]", "has 'mean', the name of a metric over all skills"),
        ("agents.max_turns=0", r"agents\.max_turns: .*greater than or equal to 1"),
        ("agents.feedback.sql_agent='{rows}'", r"in feedback '\{rows\}'; valid ones: \{result\}, \{query\}"),
        ("failures.share=1", r"failures\.share: .*less than 1"),
        ("sandbox.timeout=0", r"sandbox\.timeout: .*greater than 0"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(override: str, message: str):
    with pytest.raises(SettingsError, match=message):
        read_settings(composed(*QUICKSTART, "credit=counterfactual", override))


def test_a_skill_may_not_have_the_name_of_the_constraint_that_asks_another_for_gain():
    names = "skills.names=[write,write.gain]"
    assert read_settings(composed(*QUICKSTART, names)).skills.names == ["write", "write.gain"]
    with pytest.raises(SettingsError, match=r"has 'write\.gain', the name of a constraint: rename"):
        read_settings(composed(*QUICKSTART, "arm=closed_loop", names))


def test_the_file_of_credit_declares_every_key_and_starts_from_the_defaults_that_are_typed():
    declared = composed(*QUICKSTART, "credit=counterfactual").credit
    assert set(declared) == set(CreditSettings.model_fields)
    settings = read_settings(composed(*QUICKSTART, "credit=counterfactual")).credit
    assert settings == CreditSettings(kind="counterfactual", strength=1.0, seed=declared.seed)
    assert (settings.mapping, settings.normalization) == ("redistribute", "siblings")
    assert (settings.min_valid, settings.zero_advantage) == (2, True)


def test_replays_that_cannot_be_made_are_refused_before_training():
    with pytest.raises(SettingsError, match=r"credit: .*does not support unit=turn: use methods=\[truncate\]"):
        read_settings(composed(*QUICKSTART, "credit=counterfactual", "credit.methods=[resample]", "credit.unit=turn"))


def test_failed_prompts_are_not_given_again_where_stages_say_which_prompts_come():
    stages = ["protocol=sequential", "protocol.stage_steps=2", "failures.share=0.25"]
    with pytest.raises(SettingsError, match=r"failures\.share=0\.25 changes .*protocol=sequential fixes them"):
        read_settings(composed(*QUICKSTART, *stages))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no experiment named: add experiment=NAME. Valid: .*quickstart"),
        (["experiment=quickstrt"], r"(?s)Could not find 'experiment/quickstrt'.*quickstart"),
        (
            [*QUICKSTART, "trainer.total_trainig_steps=4"],
            "no key 'total_trainig_steps' in 'trainer'. Did you mean total_training_steps",
        ),
        ([*QUICKSTART, "creditt.strength=1"], "no key 'creditt' in 'the configuration'. Did you mean credit"),
        ([*QUICKSTART, "credit=counterfactual", "credit.strength.x=1"], r"'credit\.strength' is a value"),
        ([*QUICKSTART, "projection=qpp"], r"(?s)Could not find 'projection/qpp'.*off"),
    ],
)
def test_an_argument_that_does_not_compose_is_explained(arguments: list[str], message: str):
    with pytest.raises(SettingsError, match=message):
        compose_training(arguments)


def test_did_you_mean_names_the_nearest_and_all():
    assert did_you_mean("epsilom", ["method", "epsilon"]) == "Did you mean epsilon? Valid: epsilon, method"
    assert did_you_mean("xyz", ["method", "epsilon"]) == "Valid: epsilon, method"


@pytest.mark.parametrize(
    "choice",
    ["model_engine=megatron", "model_engine=veomni", "model_engine=torchtitan",
     "actor_rollout_ref.actor.strategy=megatron", "actor_rollout_ref.actor.strategy=veomni"],
)  # fmt: skip
def test_engines_other_than_fsdp_are_refused_in_one_sentence(choice):
    with pytest.raises(SettingsError, match=r"is not FSDP, .* model_engine=dp and .*strategy=fsdp2"):
        read_settings(composed(*QUICKSTART, choice))
