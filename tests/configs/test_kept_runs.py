"""The configurations of the studies' kept runs equal the current ones, so a study can continue from them."""

from functools import cache
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.records import kept_runs
from recipe.records.kept_runs import KeptRun
from recipe.runtime.sweep import changed_settings
from recipe.settings import read_settings
from tests.composing import composed

pytestmark = pytest.mark.slow  # each composes a configuration

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
FORWARD = OmegaConf.from_dotlist(["protocol.skill_sequence=[write,repair,trace,sql]"])
ARMS_A = ("delete", "grpo", "inverted", "shapley", "shuffled", "truncate")
ARMS_B = (
    "ewc", "grpo", "kl", "l2", "measured", "qp_both", "qp_rollouts", "qp_solutions", "qp_solutions_epsilon0.01",
    "qp_solutions_epsilon0.3", "refresh", "replay", "sequential_margin",
)  # fmt: skip
# The samples of seed 0 of paper B have no seeds.
RUNS = [("paper_a", f"{arm}.s1") for arm in ARMS_A] + [
    ("paper_b", f"{arm}.forward.s{seed}")
    for arm in ARMS_B
    for seed in (0, 2)
    if (seed == 0 or "epsilon" not in arm) and (seed == 2 or arm != "measured")
]


@cache
def runs(study: str) -> dict[str, KeptRun]:
    return {run.path.name: run for run in kept_runs.read(EVIDENCE / study / "runs.jsonl.xz")}


@pytest.mark.parametrize(("study", "name"), RUNS)
def test_a_kept_run_is_read_and_not_refused(study: str, name: str):
    kept = runs(study)[name].read_config()
    prefix, _, seed = name.rpartition(".s")
    arm, _, epsilon = prefix.removesuffix(".forward").partition("_epsilon")
    experiment = {"paper_a": "evidence_a", "paper_b": "paper_b"}[study]
    now = composed(
        f"experiment={experiment}", f"arm={arm}", f"data.seed={seed}", "actor_rollout_ref.rollout.val_kwargs.n=2"
    )
    if study == "paper_b":
        now.merge_with(FORWARD)
    if epsilon:
        now.merge_with({"projection": {"epsilon": float(epsilon), "epsilon_kind": "cosine"}})
    assert read_settings(kept).run.name == name
    assert changed_settings(kept, now) == []
    now.actor_rollout_ref.actor.optim.lr = 0.5
    assert changed_settings(kept, now) == ["actor_rollout_ref.actor.optim.lr: 0.004, now 0.5"]


@pytest.mark.parametrize(("mode", "differ"), [("skillcredit", 0), ("skillcredit_separate_async", 2)])
def test_settings_of_engines_apart_count_where_a_run_has_them(mode: str, differ: int):
    words = ["experiment=quickstart", f"trainer.v1.trainer_mode={mode}"]
    before = composed(*words)
    now = composed(*words, "trainer.v1.separate_async.parameter_sync_step=2")
    assert len(changed_settings(before, now)) == differ
