"""Data and results are kept to every file that their experiment inherits."""

import shutil
from pathlib import Path

import pytest

from data_prep.made_from import key
from recipe.studies import made_data, steps
from recipe.studies.experiments import CONFIGS, config_files, stated
from recipe.studies.manifest import StudyError, claim


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the configurations, in the working directory."""
    shutil.copytree(CONFIGS, tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "configs"


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("experiment/gsm8k", []),
        ("experiment/pretrained_credit", ["experiment/pretrained", "adaptation/lora_small", "skills/english",
                                          "adaptation/lora"]),
        ("experiment/paper_b6", ["experiment/paper_b", "experiment/quickstart", "protocol/sequential",
                                 "adaptation/lora_micro", "protocol/_stages", "adaptation/lora"]),
        ("arm/spo", ["arm/vineppo", "credit/counterfactual"]),
        ("reward/verified", []),  # inherits verl's
    ],
)  # fmt: skip
def test_files_of_a_configuration_follow_its_defaults_lists(name: str, files: list[str]) -> None:
    assert [str(path.relative_to(CONFIGS)) for path in config_files(name)] == [f"{one}.yaml" for one in (name, *files)]


def test_a_change_in_an_inherited_file_gives_made_data_another_key(copied: Path, monkeypatch) -> None:
    monkeypatch.setattr(made_data, "CONFIGS", copied)
    monkeypatch.setattr(made_data, "config_files", lambda name: config_files(name, copied))

    def present() -> str:
        return key(("m",), made_data.judge_files(["--experiment", "pretrained_credit"]), copied)

    before = present()
    assert present() == before
    _change(copied / "experiment/pretrained.yaml", "partial_credit: false", "partial_credit: true")
    assert present() != before


def test_results_are_refused_when_an_inherited_file_changes(copied: Path) -> None:
    def claim_now() -> None:
        claim(Path("out"), data={name: Path(path) for name, path in steps._files("pretrained_credit").items()})

    claim_now()
    claim_now()
    _change(copied / "experiment/pretrained.yaml", "partial_credit: false", "partial_credit: true")
    with pytest.raises(StudyError, match=r"another data 'experiment/pretrained': configs/experiment/pretrained\.yaml"):
        claim_now()


def test_an_experiment_states_its_own_value_or_else_the_inherited_one() -> None:
    rates = {"credit_parts16": 4e-3, "credit_parts4": 4e-3, "gsm8k": 1e-6, "task": None}
    assert {name: stated(name, "actor_rollout_ref.actor.optim.lr") for name in rates} == rates
    assert [stated(name, "data.max_response_length") for name in ("credit_parts16", "pretrained_safe")] == [320, 128]


def _change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
