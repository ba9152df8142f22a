"""The quickstart protects as the arm of the studies does; a weak judge differs from ours in what it says."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

import configs
from rewards.settings import JudgeSettings
from tests.composing import composed

pytestmark = pytest.mark.slow


def test_the_quickstart_is_the_closed_loop_with_credit():
    chosen = composed("experiment=three_questions")
    arm = composed("experiment=quickstart", "arm=closed_loop", "projection.epsilon=0.03", "projection.gain=0.0")
    assert chosen.projection == arm.projection
    assert (chosen.credit.kind, chosen.credit.budget) == ("counterfactual", 4)


def test_every_experiment_keeps_its_runs_in_a_folder_of_its_name():
    files = list(Path(configs.__path__[0], "experiment").glob("*.yaml"))
    assert len(files) > 10
    assert [OmegaConf.load(path).run.experiment for path in files] == [path.stem for path in files]


def test_a_weak_judge_pays_for_shown_tests_and_refuses_nothing():
    weak, ours = (
        JudgeSettings.of_config(composed("experiment=hacking", f"arm={arm}")) for arm in ("weak_judge", "grpo")
    )
    differing = {key: value for key, value in weak.record().items() if value != ours.record()[key]}
    assert differing == {"hidden_tests": False, "refuse": []}
    assert ours.hidden_tests
    assert "special_casing" in ours.refuse
