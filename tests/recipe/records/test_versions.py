"""Old records are upgraded to the current settings; those of a later release or with a removed setting are refused."""

import re

import pytest
from omegaconf import DictConfig, OmegaConf

from recipe.records import versions
from recipe.records.run_directory import RunDirectory
from recipe.records.versions import CHANGES, VERSION, RecordsError, SettingsChange, starting_weights, upgraded

ADDED_LATER = {
    "mapping": "add",
    "prefixes": "even",
    "discount": 1.0,
    "max_probability": 1.0,
    "align": False,
    "coverage": False,
    "all_or_nothing": False,
}


def old() -> DictConfig:
    return OmegaConf.create(
        {
            "data": {"seed": 7},
            "credit": {"kind": "counterfactual", "zero_advantage": True},
            "actor_rollout_ref": {"actor": {"fsdp_config": {"seed": 42}}},
        }
    )


def test_an_old_run_gets_the_keys_that_it_lacks_with_what_it_did(tmp_path):
    config = upgraded(old(), 1, "grpo.s0")
    assert OmegaConf.to_container(config.credit) == {
        "kind": "counterfactual",
        "zero_advantage": True,
        "min_valid": 2,
        **ADDED_LATER,
    }
    assert config.actor_rollout_ref.actor.fsdp_config.seed == 7  # seeds follow the run's seed
    assert set(config) == {"data", "credit", "actor_rollout_ref"}  # adds no group


def test_records_of_the_current_version_are_read_as_they_are():
    assert upgraded(old(), VERSION, "grpo.s0") == old()


def test_a_run_directory_names_its_version_and_one_without_is_the_first(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "study", "grpo.s0")
    run.write_config(old())
    assert (run.path / "config.yaml").read_text().splitlines()[0] == f"records_version: {VERSION}"
    assert run.read_config() == old()
    (run.path / "config.yaml").write_text(OmegaConf.to_yaml(old()))
    assert run.recorded_config() == (old(), 1)
    assert run.read_config().credit.min_valid == 2


@pytest.mark.parametrize(
    ("closed_loop", "before", "epsilon", "gain"),
    [(True, -0.3, 0.0, 0.3), (True, 0.03, 0.03, 0.0), (False, -0.3, -0.3, 0.0), (True, 0.0, 0.0, 0.0)],
)
def test_a_loop_that_asked_for_gain_by_its_epsilon_promised_the_anchor(closed_loop, before, epsilon, gain):
    config = upgraded(OmegaConf.create({"projection": {"closed_loop": closed_loop, "epsilon": before}}), 12, "a")
    assert (config.projection.epsilon, config.projection.gain) == (pytest.approx(epsilon), pytest.approx(gain))
    assert str(config.projection.gain) != "-0.0"  # which would be another setting than 0.0


@pytest.mark.parametrize(("verified", "corrections"), [(False, 3), (True, 0)])
def test_a_run_that_verified_nothing_is_no_other_run_for_its_lack_of_corrections(verified: bool, corrections: int):
    config = OmegaConf.create({"projection": {"method": "qp", "verify": verified}})
    assert upgraded(config, 8, "qp_solutions.s0").projection.verify_corrections == corrections


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_an_unknown_version_is_refused_by_its_number(tmp_path, version: int):
    run = RunDirectory.prepare(str(tmp_path), "study", "grpo.s0")
    (run.path / "config.yaml").write_text(f"records_version: {version}\n{OmegaConf.to_yaml(old())}")
    told = f"{run.path} has version {version} of the records; this release reads versions 1 to {VERSION}"
    with pytest.raises(RecordsError, match=re.escape(told)):
        run.read_config()


def test_a_setting_that_is_gone_is_dropped_where_it_did_nothing_and_refused_elsewhere(monkeypatch):
    change = SettingsChange(removed={"credit.zero_advantage": False, "credit.tolerance": 1e-6})
    monkeypatch.setitem(CHANGES, VERSION + 1, change)
    monkeypatch.setattr(versions, "VERSION", VERSION + 1)
    told = "grpo.s0 (version 1 of the records) was made with credit.zero_advantage=True"
    with pytest.raises(RecordsError, match=re.escape(told)):
        upgraded(old(), 1, "grpo.s0")
    unused = old()
    unused.credit.zero_advantage = False
    assert "zero_advantage" not in upgraded(unused, 1, "grpo.s0").credit


def test_a_value_with_another_name_is_read_by_its_name_of_today(monkeypatch):
    monkeypatch.setitem(CHANGES, VERSION + 1, SettingsChange(renamed={"credit.kind": {"counterfactual": "replayed"}}))
    monkeypatch.setattr(versions, "VERSION", VERSION + 1)
    assert upgraded(old(), 1, "grpo.s0").credit.kind == "replayed"
    off = OmegaConf.create({"credit": {"kind": "off"}})
    assert upgraded(off, VERSION, "grpo.s0").credit.kind == "off"
    assert "credit" not in upgraded(OmegaConf.create({"data": {"seed": 7}}), VERSION, "grpo.s0")


def test_a_setting_that_became_a_list_is_read_as_one():
    kept = OmegaConf.create({"credit": {"kind": "counterfactual", "method": "shapley"}})
    assert upgraded(kept, 3, "shapley.s0").credit == {
        "kind": "counterfactual",
        "methods": ["shapley"],
        **ADDED_LATER,
    }
    off = OmegaConf.create({"credit": {"kind": "off"}})
    assert "methods" not in upgraded(off, 3, "grpo.s0").credit


def test_every_version_since_the_first_says_what_it_changed():
    assert sorted(CHANGES) == list(range(2, VERSION + 1))


def test_a_key_that_got_another_name_keeps_its_value():
    config = OmegaConf.create({"penalty": {"kind": "ewc", "fisher_samples": 12}})
    assert upgraded(config, 6, "ewc.s0").penalty == {"kind": "ewc", "solutions": 12}


def test_only_runs_of_the_first_version_may_lack_their_starting_weights():
    def unread() -> int:
        raise AssertionError("a run with the digest needs no version")

    assert starting_weights({"event": "start", "weights": "aa"}, unread, "grpo.s0") == "aa"
    assert starting_weights({"event": "start", "weights": ""}, unread, "grpo.s0") == ""  # a model on a hub
    assert starting_weights({"event": "start"}, lambda: 1, "grpo.s0") == ""
    with pytest.raises(RecordsError, match=re.escape("grpo.s0: the event 'start' in events.jsonl has no weights")):
        starting_weights({"event": "start"}, lambda: 2, "grpo.s0")
