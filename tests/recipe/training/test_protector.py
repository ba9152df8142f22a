import itertools
import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from recipe.settings import Settings, SettingsError, read_settings
from recipe.training.failure_buffer import FailureBuffer
from recipe.training.protector import Protector, has_plain_loss, load_state
from recipe.training.skill_accuracy import skill_rewards
from tests.composing import composed
from workers.safety.anchors import AnchorError
from workers.skill_metrics import forgetting
from workers.solution_store import SolutionStore, StoredSolution
from workers.update_request import Protection, WantedPenalty

SKILLS = ["write", "repair", "trace", "sql"]


def settings(*overrides: str):
    return read_settings(composed("experiment=quickstart", *overrides))


def changed(projection: dict, penalty: dict | None = None, kind: str = "mixed") -> Settings:
    """The quickstart's settings with these changes."""
    base = quickstart().model_dump()
    changes = {"projection": base["projection"] | projection, "penalty": base["penalty"] | (penalty or {})}
    return Settings.model_validate(base | changes | {"protocol": {"kind": kind}})


def quickstart() -> Settings:
    return settings("projection=qp")


def names(protection: Protection | None) -> list[str]:
    assert protection is not None
    return protection.names


def protection_of(protector: Protector, guarded: Sequence[str] | None = None) -> Protection:
    protection = protector.protection(guarded)
    assert protection is not None
    return protection


def solutions_of(protector: Protector) -> SolutionStore:
    assert protector.solutions is not None
    return protector.solutions


def validation(**accuracies: float) -> dict[str, float]:
    return {f"skill/{name}/accuracy": value for name, value in accuracies.items()}


@pytest.mark.slow
def test_nothing_is_protected_without_projection():
    protector = Protector(changed({"method": "off"}))
    protector.record_validation(validation(**dict.fromkeys(SKILLS, 0.5)))
    assert protector.protection() is None
    assert protector.metrics() == {}


def test_forgotten_is_what_a_validation_lies_below_the_best_one():
    protector = Protector(changed({"method": "off"}))
    first = validation(write=0.5, sql=0.5)
    assert protector.forgotten(first) == {"skill/write/below_peak": 0.0, "skill/sql/below_peak": 0.0}
    protector.record_validation(first)
    later = validation(write=0.25, sql=0.75)
    assert protector.forgotten(later) == {"skill/write/below_peak": 0.25, "skill/sql/below_peak": 0.0}


def test_what_lies_below_the_peak_is_the_forgetting_of_the_stages_so_far():
    """The same peak, over the start and all earlier stages; `below_peak` is at least 0."""
    initial, stages = [0.9, 0.2, 0.5, 0.4], [[0.3, 0.8, 0.5, 0.4], [0.6, 0.5, 0.7, 0.1], [0.3, 0.9, 0.2, 0.1]]
    protector = Protector(changed({"method": "off"}))
    protector.record_validation(validation(**dict(zip(SKILLS, initial, strict=True))))
    for number, accuracies in enumerate(stages, start=1):
        measured = validation(**dict(zip(SKILLS, accuracies, strict=True)))
        below = [protector.forgotten(measured)[f"skill/{skill}/below_peak"] for skill in SKILLS]
        assert below == pytest.approx(np.maximum(forgetting(stages[:number], initial), 0))
        protector.record_validation(measured)
    assert below == pytest.approx([0.6, 0.0, 0.5, 0.3])


def test_all_skills_are_protected_by_default_and_numbered_as_in_skills_names():
    protection = protection_of(Protector(changed({"protected": ["sql", "repair"]})))
    assert [(each.name, each.skill, each.solutions) for each in protection.constraints] == [
        ("sql", 3, None),
        ("repair", 1, None),
    ]
    assert (protection.method, protection.epsilon, protection.space) == ("qp", 0.0, "displacement")
    assert names(Protector(quickstart()).protection()) == SKILLS


@pytest.mark.slow
def test_the_updates_own_pass_is_shared_only_where_it_is_the_gradient_of_the_constraints_samples():
    def shared(guarded=None, plain_loss=True, loss_mean="token-mean", **projection) -> bool:
        protection = protection_of(Protector(changed(projection), plain_loss, loss_mean), guarded)
        assert protection.token_mean == (loss_mean == "token-mean")
        return protection.shared_pass

    assert shared()
    assert shared(loss_mean="seq-mean-token-mean")
    assert not shared(loss_mean="seq-mean-token-sum-norm")  # depends on how a batch is cut
    assert not shared(guarded=["write"])  # memory samples are not trained on
    assert not shared(constraint_source="solutions")
    assert not shared(constraint_source="both")
    assert not shared(plain_loss=False)
    assert not shared(method="measure")


@pytest.mark.parametrize(
    ("words", "plain"),
    [
        ([], True),
        (["actor_rollout_ref.actor.use_kl_loss=true"], False),
        (["actor_rollout_ref.actor.entropy_coeff=0.01"], False),
        *[([f"actor_rollout_ref.actor.policy_loss.loss_mode={mode}"], False) for mode in ("geo_mean", "gspo", "cispo")],
    ],
)
def test_only_ppos_loss_alone_is_plain(words: list[str], plain: bool):
    assert has_plain_loss(composed("experiment=quickstart", *words).actor_rollout_ref.actor) == plain


def test_with_stages_only_skills_that_the_plan_guards_are_protected():
    protector = Protector(changed({"protected": ["sql", "repair"]}))
    assert names(protector.protection(["write", "repair"])) == ["repair"]
    assert protector.protection([]) is None
    assert protector.metrics(["write"])["projection/active_constraints"] == 0


def test_forgetting_protects_what_fell_below_its_peak_and_lets_it_go_when_it_is_back():
    protector = Protector(changed({"when": "forgetting"}))
    assert protector.protection() is None
    protector.record_validation(validation(write=0.9, repair=0.5, sql=0.4))
    protector.record_validation(validation(write=0.7, repair=0.46, sql=0.6))
    assert protector.active() == ["write"]
    assert protector.metrics()["projection/below_peak/write"] == pytest.approx(0.2)
    protector.record_validation(validation(write=0.88, repair=0.4))
    assert protector.active() == ["repair"]


def test_forgetting_can_be_seen_in_the_steps_own_samples_without_a_validation():
    protector = Protector(changed({"when": "forgetting", "forgetting_accuracy": "training", "forgetting_average": 0.5}))
    for accuracy in (0.8, 0.8, 0.8):
        protector.record_training({"train_skill/write/accuracy": accuracy})
    protector.record_validation(validation(sql=0.9))
    protector.record_validation(validation(sql=0.1))  # has no effect here
    assert protector.active() == []
    protector.record_training({"train_skill/write/accuracy": 0.6})
    assert protector.active() == ["write"]
    assert protector.metrics()["projection/below_peak/write"] == pytest.approx(0.1)
    protector.record_training({"train_skill/write/accuracy": 0.9})
    assert protector.active() == []


SOLUTIONS = [StoredSolution([1, number], [2], [1]) for number in range(4)]


def test_solutions_become_constraints_of_their_own_beside_those_of_rollouts():
    protector = Protector(changed({"constraint_source": "both", "solutions_per_protected": 3, "protected": ["sql"]}))
    for number, solution in enumerate(SOLUTIONS):
        solutions_of(protector).add("sql", f"prompt{number}", solution)
    rollouts, solutions = protection_of(protector).constraints
    assert (rollouts.name, rollouts.solutions) == ("sql.rollouts", None)
    assert (solutions.name, solutions.solutions) == ("sql.solutions", SOLUTIONS[1:])
    assert protector.metrics()["solutions/sql"] == 3


def test_the_solutions_of_a_finished_stage_are_sent_for_its_fisher_information():
    protector = Protector(changed({"method": "off"}, {"kind": "ewc", "strength": 2.0}, kind="sequential"))
    solutions_of(protector).add("write", "p", SOLUTIONS[0])
    assert protector.wanted_penalty(1, ["write"]) == WantedPenalty("ewc", 2.0, 1, [SOLUTIONS[0]])
    wanted = protector.wanted_penalty(1, [])
    assert wanted is not None
    assert wanted.solutions == []
    assert Protector(quickstart()).wanted_penalty(1, []) is None


def test_rehearsal_takes_the_newest_solutions_of_all_earlier_skills():
    penalty = {"kind": "rehearsal", "strength": 0.1, "solutions": 2}
    protector = Protector(changed({"method": "off"}, penalty, kind="sequential"))
    for name in ("write", "sql"):
        for number, solution in enumerate(SOLUTIONS[:3]):
            solutions_of(protector).add(name, f"p{number}", solution)
    wanted = protector.wanted_penalty(2, ["sql"], ["write", "sql"])
    assert wanted == WantedPenalty("rehearsal", 0.1, 2, SOLUTIONS[1:3] * 2)


def loop(**projection) -> Protector:
    chosen = {"closed_loop": True, "constraint_source": "solutions", "anchor_solutions": 2} | projection
    return Protector(changed({"protected": ["sql", "write"], "epsilon": 0.1} | chosen))


def measured(protector: Protector, **levels: float) -> None:
    protector.record_update({f"actor/projection/level/{name}": level for name, level in levels.items()})


def test_an_anchor_set_is_frozen_when_protection_begins_and_comes_first():
    protector = loop(solutions_per_protected=3)
    solutions_of(protector).add("sql", "p0", SOLUTIONS[0])
    (in_mixed, _) = protection_of(protector).constraints
    assert (in_mixed.anchored, in_mixed.solutions) == (0, SOLUTIONS[:1])  # too few yet
    (staged,) = protection_of(protector, ["sql"]).constraints
    assert (staged.anchored, staged.anchor) == (1, None)
    measured(protector, sql=-0.5)
    for number, solution in enumerate(SOLUTIONS):
        solutions_of(protector).add("sql", f"p{number}", solution)
    measured(protector, sql=-0.9)
    (later,) = protection_of(protector, ["sql"]).constraints
    assert (later.anchored, later.anchor) == (1, -0.5)
    assert later.solutions == [SOLUTIONS[0], SOLUTIONS[2], SOLUTIONS[3]]


def test_a_store_smaller_than_the_anchor_set_freezes_all_that_it_holds_in_mixed():
    protector = loop(solutions_per_protected=3, anchor_solutions=16)
    for number, solution in enumerate(SOLUTIONS[:3]):
        solutions_of(protector).add("sql", f"p{number}", solution)
    assert [each.anchored for each in protection_of(protector).constraints] == [3, 0]


def test_a_loop_that_asks_for_gain_bounds_the_anchor_set_and_asks_all_solutions():
    protector = loop(gain=0.3, solutions_per_protected=3)
    names = ["sql", "sql.gain", "write", "write.gain"]
    assert [each.name for each in protection_of(protector).constraints] == names  # recipe.memory counts them
    solutions_of(protector).add("sql", "p0", SOLUTIONS[0])
    in_mixed, not_yet, *_ = protection_of(protector).constraints
    assert (in_mixed.solutions, in_mixed.anchored, not_yet.gain) == (SOLUTIONS[:1], 0, 0.0)
    for number, solution in enumerate(SOLUTIONS[:3]):
        solutions_of(protector).add("sql", f"p{number}", solution)
    bound, asked, *_ = protection_of(protector).constraints
    assert (bound.solutions, bound.anchored, bound.gain) == ((SOLUTIONS[0], SOLUTIONS[1]), 2, 0.0)
    assert (asked.solutions, asked.gain, asked.follows, asked.epsilon) == ([SOLUTIONS[2]], 0.3, "sql", 0.1)
    measured(protector, sql=-0.5)
    assert protection_of(protector).constraints[0].anchor == -0.5


@pytest.mark.slow
def test_noise_with_enough_agreement_is_accepted():
    assert changed({"noise": 2.0, "agreement": 0.61}).projection.noise == 2.0
    assert changed({"noise": 0.5, "agreement": 0.1}).projection.noise == 0.5


def test_anchors_survive_a_checkpoint_and_end_when_their_skill_is_trained_again():
    protector, restored = loop(), loop()
    solutions_of(protector).add("sql", "p0", SOLUTIONS[0])
    protection_of(protector, ["sql"])
    measured(protector, sql=-0.5)
    restored.restore(json.loads(json.dumps(protector.state())))
    (kept,) = protection_of(restored, ["sql"]).constraints
    assert (kept.anchor, kept.anchored) == (-0.5, 1)
    solutions_of(restored).add("write", "q", SOLUTIONS[1])
    protection_of(restored, ["write"])  # sql is trained in this stage
    (anew,) = protection_of(restored, ["sql"]).constraints
    assert anew.anchor is None


@pytest.mark.slow
def test_a_level_without_its_solutions_and_a_lost_file_are_refused(tmp_path):
    protector = loop()
    solutions_of(protector).add("sql", "p0", SOLUTIONS[0])
    protection_of(protector, ["sql"])
    measured(protector, sql=-0.5)
    state = protector.state()
    state["anchors"]["sql"]["solutions"] = []
    with pytest.raises(AnchorError, match="has 0 of the 1 solutions that the level of sql"):
        loop().restore(state)
    with pytest.raises(AnchorError, match=r"no protector.json, so the anchors of closed_loop and verify are lost"):
        load_state(tmp_path, loop(), FailureBuffer(1))
    load_state(tmp_path, Protector(changed({"method": "qp"})), FailureBuffer(1))


def test_a_level_that_is_not_a_number_becomes_no_anchor():
    protector = loop()
    solutions_of(protector).add("sql", "p0", SOLUTIONS[0])
    protection_of(protector, ["sql"])
    measured(protector, sql=float("nan"))
    assert protection_of(protector, ["sql"]).constraints[0].anchor is None


def test_rollouts_have_the_reward_of_their_samples_as_level_and_its_units():
    protector = loop(constraint_source="rollouts")
    infos = [{"skill": "sql", "score": score} for score in (1.0, 0.0, 1.0, 1.0)]
    protector.record_rewards(skill_rewards(infos, ["a", "a", "b", "b"], [4, 8, 6, 6]))
    (constraint,) = protection_of(protector, ["sql"]).constraints
    assert (constraint.level, constraint.anchor) == (0.75, 0.75)
    assert constraint.error == pytest.approx(2**0.5 * 0.25)
    # The standard deviation of the only group that has one, times the mean length.
    assert constraint.unit == pytest.approx(0.5**0.5 * 6)
    protector.record_rewards(skill_rewards(infos[:2], ["a", "a"], [1, 1], standardized=False))
    (later,) = protection_of(protector, ["sql"]).constraints
    assert (later.level, later.anchor, later.unit, later.error) == (0.5, 0.75, 1.0, math.inf)


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 3, 6])
@pytest.mark.parametrize("standardized", [True, False])
def test_the_unit_of_rollouts_turns_their_objective_into_reward(length: int, standardized: bool):
    """All answers of independent binary tokens, enumerated: unit * gradient of the objective = that of the reward."""
    logits = torch.linspace(-0.5, 0.5, length, dtype=torch.float64, requires_grad=True)
    answers = torch.tensor(list(itertools.product((0.0, 1.0), repeat=length)), dtype=torch.float64)
    rewards = (answers.mean(1) > 0.4).double()
    log_probs_B_T = -torch.nn.functional.softplus((1 - 2 * answers) * logits)
    probabilities = log_probs_B_T.sum(1).exp()
    expected = (probabilities * rewards).sum()
    (of_reward,) = torch.autograd.grad(expected, logits, retain_graph=True)
    # As many samples as make the group's standard deviation that of the distribution, in equal parts of it.
    deviation = float((expected * (1 - expected)).detach().sqrt()) if standardized else 1.0
    advantages = (rewards - expected.detach()) / deviation
    objective = (probabilities.detach() * log_probs_B_T.mean(1) * advantages).sum()
    (of_objective,) = torch.autograd.grad(objective, logits)
    samples = torch.multinomial(probabilities.detach(), 20_000, True, generator=torch.Generator().manual_seed(0))
    infos = [{"skill": "sql", "score": float(rewards[each])} for each in samples]
    unit = skill_rewards(infos, ["a"] * len(infos), [length] * len(infos), standardized)["sql"].unit
    torch.testing.assert_close(unit * of_objective, of_reward, rtol=0.03, atol=1e-3)


def test_an_anchor_from_rollouts_waits_for_two_prompts_and_is_never_exact():
    protector = loop(constraint_source="rollouts")
    infos = [{"skill": "sql", "score": 1.0}] * 4
    protector.record_rewards(skill_rewards(infos, ["a"] * 4, [1] * 4))
    (waiting,) = protection_of(protector, ["sql"]).constraints
    assert (waiting.anchor, waiting.level) == (None, None)
    protector.record_rewards(skill_rewards(infos, ["a", "a", "b", "b"], [1] * 4))
    (taken,) = protection_of(protector, ["sql"]).constraints
    assert (taken.anchor, taken.level) == (1.0, 1.0)
    assert taken.error == pytest.approx((2 * 5 / 6 * 1 / 6 / 4) ** 0.5)  # of the anchor's error and the level's


@pytest.mark.slow
def test_the_random_signs_of_a_control_differ_between_steps_seeds_and_orders_of_skills():
    found = set()
    for seed, order, step in itertools.product((0, 1), (None, SKILLS), (1, 2)):
        protector = Protector(changed({"control": "random_signs"}), data_seed=seed)
        protector.sequence = order
        protection = protector.protection(step=step)
        found.add(protection and protection.control)
    assert len(found) == 8


def test_epsilon_is_the_most_specific_one():
    epsilons = {"solutions": 0.2, "sql": {"rollouts": 0.3}, "write": 0.4}
    protector = loop(constraint_source="both", epsilon_of=epsilons)
    found = {each.name: each.epsilon for each in protection_of(protector).constraints}
    assert found == {
        "sql.rollouts": 0.3, "sql.solutions": 0.2, "write.rollouts": 0.4, "write.solutions": 0.4,
    }  # fmt: skip


VERIFIED = {"verify": True, "constraint_source": "solutions"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("projection", "message"),
    [
        ({"epsilon_of": {"poetry": 0.1}}, r"epsilon_of names \['poetry'\], which are neither protected skills"),
        ({"epsilon_of": {"sql": float("nan")}}, "must be a finite number"),
        ({"closed_loop": True, "epsilon_kind": "cosine"}, "closed_loop and verify count in units of J"),
        ({**VERIFIED, "epsilon_kind": "cosine"}, "count in units of J"),
        ({**VERIFIED, "space": "gradient"}, "count in units of J"),
        ({"closed_loop": True, "control": "random_signs"}, "cannot recover lost skill"),
        ({"closed_loop": True, "method": "pcgrad"}, "does not support slack"),
        ({"verify": True}, "needs anchor sets of solutions"),
        ({"verify": True, "constraint_source": "both", "method": "measure"}, "changes none"),
        ({"epsilon_of": {"solutions": {"rollouts": 0.1}}}, "gives the source solutions a mapping"),
        ({"closed_loop": True, "when": "forgetting"}, "could promise nothing: set when=always"),
        ({**VERIFIED, "when": "forgetting"}, "could promise nothing"),
        ({"noise": 1.0}, "cosine of 0 or less: set agreement above 0"),
        ({"noise": 2.0, "agreement": 0.6}, "cosine of 0.6 or less"),
        ({"noise": 0.5}, "leaves such constraints out"),
        ({"metric": "adam", "space": "gradient"}, "space=displacement"),
        ({"noise": 1.0, "method": "agem"}, "noise needs method=qp"),
        ({**VERIFIED, "control": "random_signs"}, "closed_loop=false and verify=false"),
        ({"gain": 0.1}, "gain is asked of stored solutions"),
        ({"gain": 0.1, "closed_loop": True}, "gain is asked of stored solutions"),  # of rollouts
        ({"gain": 0.1, **VERIFIED}, "gain is asked of stored solutions"),  # each step's epsilon is its own
        ({"closed_loop": True, "epsilon": -0.1}, "one is -0.1: set it to 0 or more; gain is what"),
        ({**VERIFIED, "epsilon_of": {"sql": -0.2}}, "one is -0.2: set it to 0 or more"),
        ({"held_out": True}, "held_out keeps anchor sets of solutions out of the gradient, and there are none"),
        ({"held_out": True, "closed_loop": True}, "and there are none"),  # of rollouts
        ({**VERIFIED, "held_out": True, "solutions_per_protected": 16}, r"\(16\) is above anchor_solutions \(16\)"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(projection: dict, message: str):
    with pytest.raises(ValidationError, match=message):
        changed(projection)


def test_measure_is_what_the_projection_calls_none():
    assert protection_of(Protector(changed({"method": "measure"}))).method == "none"
    assert protection_of(Protector(changed({"method": "qp"}))).method == "qp"


def test_what_it_knows_survives_a_checkpoint():
    settings = changed({"when": "forgetting", "constraint_source": "solutions"})
    protector, restored = Protector(settings), Protector(settings)
    protector.record_validation(validation(write=0.9))
    protector.record_validation(validation(write=0.5))
    solutions_of(protector).add("write", "p", SOLUTIONS[2])
    restored.restore(json.loads(json.dumps(protector.state())))
    assert restored.active() == ["write"]
    assert solutions_of(restored).of("write") == [SOLUTIONS[2]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["projection.protected=[poetry]"], r"names \['poetry'\], which are not in skills.names"),
        (["projection.protected=[]"], "between 1 and projection.max_protected=8"),
        (["projection.max_protected=2"], "has 4 skills; between 1 and projection.max_protected=2"),
        (["skills=any"], "needs skills.names"),
        (
            [
                "protocol=sequential",
                "projection.when=forgetting",
                "projection.forgetting_accuracy=training",
                "projection.constraint_source=solutions",
            ],
            "needs samples of the earlier skills, from memory prompts",
        ),
    ],
)
def test_what_cannot_be_protected_is_refused(overrides: list[str], message: str):
    with pytest.raises(SettingsError, match=message):
        settings("projection=qp", *overrides)
