"""Data and results are kept to every file that their experiment inherits."""

import shutil
from pathlib import Path

import pytest

from data_prep.made_from import key
from recipe.studies.files import CONFIGS, config_files, judge_files, stated
from recipe.studies.manifest import StudyError, claim
from recipe.studies.steps import _files


@pytest.mark.parametrize(
    ("name", "inherited"),
    [
        ("experiment/gsm8k", ""),
        ("experiment/pretrained_credit", "experiment/pretrained adaptation/lora_small skills/english adaptation/lora"),
        ("experiment/three_questions", "experiment/quickstart arm/closed_loop credit/counterfactual "
         "adaptation/lora_micro arm/qp_solutions adaptation/lora projection/qp projection/_options"),
        ("reward/verified", ""),  # inherits verl's
    ],
)  # fmt: skip
def test_files_of_a_configuration_follow_its_defaults_lists(name: str, inherited: str) -> None:
    files = [str(path.relative_to(CONFIGS).with_suffix("")) for path in config_files(name)]
    assert files == [name, *inherited.split()]


def test_a_change_in_an_inherited_file_gives_data_another_key_and_refuses_results(tmp_path: Path, monkeypatch) -> None:
    configs = Path("configs")
    shutil.copytree(CONFIGS, tmp_path / configs)
    monkeypatch.chdir(tmp_path)

    def present() -> str:
        claim(Path("out"), data={name: Path(path) for name, path in _files("pretrained_credit").items()})
        return key((), judge_files(["--experiment", "pretrained_credit"], configs))

    before = present()
    assert present() == before
    inherited = configs / "experiment/pretrained.yaml"
    inherited.write_text(inherited.read_text().replace("partial_credit: false", "partial_credit: true"))
    with pytest.raises(
        StudyError, match=r"another data 'experiment/pretrained': recorded configs/experiment/pretrained\.yaml"
    ):
        present()
    shutil.rmtree("out")
    assert present() != before


def test_an_experiment_states_its_own_value_or_else_the_inherited_one() -> None:
    rates = {"credit_parts16": 2e-3, "credit_parts4": 2e-3, "gsm8k": 1e-6, "task": None}
    assert {name: stated(name, "actor_rollout_ref.actor.optim.lr") for name in rates} == rates
    assert [stated(name, "data.max_response_length") for name in ("credit_parts16", "pretrained_safe")] == [320, 128]
