import pytest
from omegaconf import OmegaConf

from recipe.preflight import compose_training
from recipe.records.old_configs import as_current
from recipe.records.run_directory import RunDirectory
from recipe.settings import SettingsError, read_settings
from tests.composing import composed


def test_a_recorded_projection_none_is_read_as_measure(tmp_path):
    config = composed("experiment=quickstart", "projection=measure")
    config.projection.method = "none"
    RunDirectory(tmp_path).write_config(config)
    assert read_settings(RunDirectory(tmp_path).read_config()).projection.method == "measure"


def test_a_record_without_seeds_and_greedy_answers_is_read_as_a_run_that_had_none():
    old = as_current(OmegaConf.create({"run": {"root": "o"}, "projection": {"method": "qp"}}))
    assert old == {
        "run": {"root": "o", "seeded_samples": False, "greedy_validation": False},
        "projection": {"method": "qp"},
    }
    now = {"run": {"seeded_samples": True, "greedy_validation": True}}
    assert as_current(OmegaConf.create(now)) == now
    assert as_current(OmegaConf.create({})) == {}


@pytest.mark.parametrize("argument", ["projection=none", "projection.method=none"])
def test_the_old_name_of_measure_is_refused_with_the_current_one(argument: str):
    others = ["projection=qp"] if "." in argument else []
    with pytest.raises(SettingsError, match=r"projection=measure"):
        read_settings(compose_training(["experiment=quickstart", *others, argument]))
