"""JudgeSettings: one place for defaults; an invalid setting is refused in one clear line."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rewards import setting_names
from rewards.settings import JudgeSettings

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shape", "linear"), ("shape", 3), ("refuse", ["none"]), ("think_opener", "me"), ("gsm8k_extraction", "loose"),
        ("sandbox_isolation", "total"),
    ],
)  # fmt: skip
def test_an_unknown_choice_is_refused_with_the_valid_ones(name, value):
    with pytest.raises(ValueError, match=rf"^reward setting {name}: unknown .*; valid ones: \w+"):
        JudgeSettings(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("partial_credit", "false", "'false' is not true or false"),
        ("partial_credit", 1, "1 is not true or false"),
        ("timeout", "30", "'30' is not a number of seconds above 0"),
        ("timeout", True, "True is not a number of seconds above 0"),
        ("timeout", 0, "0 is not a number of seconds above 0"),
        ("timeout", float("nan"), "nan is not a number of seconds above 0"),
        ("timeout", None, "None is not a number of seconds above 0"),
        ("memory_mb", 512.5, "512.5 is not a whole number above 0"),
        ("memory_mb", -1, "-1 is not a whole number above 0"),
        ("max_characters", "all", "'all' is not a whole number above 0"),
        ("countdown_format", "0.1", "'0.1' is not a number"),
        ("countdown_numbers", float("inf"), "inf is not a number"),
        ("sandbox_url", 8080, "8080 is not a url, a list of urls or null"),
        ("sandbox_url", ["http://a", 1], "['http://a', 1] is not a url, a list of urls or null"),
        ("forbidden_imports", "ctypes", "'ctypes' is not a list"),
        ("forbidden_imports", [1], "1 is not a string"),
        ("refuse", "length", "'length' is not a list"),
        ("refuse", {"length": True}, "{'length': True} is not a list"),
        ("refuse", None, "None is not a list"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_in_one_line(name, value, message):
    with pytest.raises(ValueError) as refused:
        JudgeSettings(**{name: value})
    assert str(refused.value) == f"reward setting {name}: {message}"


def test_a_name_that_is_no_setting_is_refused_with_the_valid_ones():
    with pytest.raises(ValueError, match=r"^unknown reward setting 'partal_credit'; valid ones: ") as refused:
        JudgeSettings.among({"partial_credit": True, "partal_credit": False})
    assert str(refused.value).endswith(", ".join(setting_names()))


def test_what_verl_hands_in_is_passed_over():
    assert JudgeSettings.among({"reward_router_address": "here", "timeout": 3}) == JudgeSettings(timeout=3)


def test_lists_of_a_configuration_mean_what_lists_mean():
    given = OmegaConf.create(
        {"refuse": ["empty"], "forbidden_imports": ["gc"], "sandbox_url": ["http://a", "http://b"]}
    )
    settings = JudgeSettings.among({str(name): value for name, value in given.items()})
    assert settings == JudgeSettings(refuse=["empty"], forbidden_imports=("gc",), sandbox_url=("http://a", "http://b"))
    assert hash(settings) == hash(JudgeSettings(**settings.record()))


@pytest.mark.parametrize("chosen", [{}, {"sandbox_url": ["http://a"], "refuse": [], "timeout": 3.5}])
def test_the_record_is_json_that_gives_the_settings_back(chosen):
    settings = JudgeSettings(**chosen)
    assert JudgeSettings(**json.loads(json.dumps(settings.record()))) == settings


def test_the_configuration_names_every_setting_with_its_default():
    names = [field.name for field in fields(JudgeSettings)]
    given = OmegaConf.load(ROOT / "configs/reward/verified.yaml").custom_reward_function.reward_kwargs
    sandbox = OmegaConf.load(ROOT / "configs/train.yaml").sandbox
    container = OmegaConf.to_container(OmegaConf.create({"reward": given, "sandbox": sandbox}), resolve=True)
    assert isinstance(container, dict)
    resolved = container["reward"]
    assert set(resolved) == set(names) == set(setting_names())
    assert JudgeSettings(**resolved) == JudgeSettings()
