"""The studies' kept runs are runs of the configurations as they are: a study can go on with them and compare them."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.records.run_directory import RunDirectory
from recipe.runtime.sweep import changed_settings
from recipe.settings import read_settings
from tests.composing import composed

pytestmark = pytest.mark.slow  # each composes a configuration

DOCS = Path(__file__).parents[2] / "docs"
FORWARD = OmegaConf.from_dotlist(["protocol.skill_sequence=[write,repair,trace,sql]"])
RUNS = sorted(DOCS.glob("evidence_a/runs/*.s1")) + sorted(DOCS.glob("evidence_b/runs/*.forward.s[02]"))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_kept_run_is_read_and_not_refused(run: Path):
    name, _, seed = run.name.rpartition(".s")
    arm, _, epsilon = name.removesuffix(".forward").partition("_epsilon")
    study = {"evidence_a": "evidence_a", "evidence_b": "paper_b"}[run.parents[1].name]
    now = composed(f"experiment={study}", f"arm={arm}", f"data.seed={seed}", "actor_rollout_ref.rollout.val_kwargs.n=2")
    if study == "paper_b":
        now.merge_with(FORWARD)
    if epsilon:
        now.merge_with({"projection": {"epsilon": float(epsilon), "epsilon_kind": "cosine"}})
    kept = RunDirectory(run).read_config()
    assert read_settings(kept).run.name == run.name
    assert changed_settings(kept, now) == []
    now.actor_rollout_ref.actor.optim.lr = 0.5
    assert changed_settings(kept, now) == ["actor_rollout_ref.actor.optim.lr: 0.004, now 0.5"]
