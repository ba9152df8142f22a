"""Noise has the stated cosine, runs are reproducible, and each method protects skills as far as it should."""

import numpy as np
import pytest

from examples.toys.projection import (
    PROBLEMS,
    ProblemKind,
    ProtectionRun,
    Quadratic,
    learn_new_skill,
    study,
    table,
    train_protected,
    with_noise,
)

pytestmark = pytest.mark.slow

RUN = ProtectionRun(seeds=20, updates=40)
each_kind = pytest.mark.parametrize("kind", PROBLEMS, ids=lambda kind: kind.name)


@pytest.mark.parametrize("cosine", [1.0, 0.71, 0.32])
def test_noise_has_the_stated_cosine_and_keeps_the_length(cosine: float) -> None:
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(5, 3, 30)) * 10.0 ** rng.integers(-3, 3, (5, 3, 1))
    noisy = with_noise(gradients, cosine, rng)
    norms = np.linalg.norm(gradients, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(noisy, axis=-1), norms)
    np.testing.assert_allclose((gradients * noisy).sum(-1) / norms**2, cosine)


@each_kind
def test_training_the_protected_skills_raises_each_of_them(kind: ProblemKind) -> None:
    problem = kind.draw(np.random.default_rng(0), RUN.seeds)
    gain = problem.values(train_protected(problem, RUN)) - problem.values(np.zeros((RUN.seeds, kind.parameters)))
    assert (gain.mean(0)[:-1] > 0.3).all()


@each_kind
def test_seeds_reproduce_and_differ(kind: ProblemKind) -> None:
    first = learn_new_skill(kind, "qp", RUN, cosine=0.71)
    assert (first.values == learn_new_skill(kind, "qp", RUN, cosine=0.71).values).all()
    other = learn_new_skill(kind, "qp", ProtectionRun(20, 40, seed=1), cosine=0.71)
    assert (first.values != other.values).any()


@each_kind
def test_exact_constraints_keep_the_skills_and_noise_loses_them(kind: ProblemKind) -> None:
    none, pcgrad, qp = (learn_new_skill(kind, method, RUN) for method in ("none", "pcgrad", "qp"))
    lost = [learning.forgetting[-1].max(-1).mean() for learning in (none, pcgrad, qp)]
    assert lost[0] > 0.15
    assert lost[1] > 0.4 * lost[0] > 5 * lost[2]
    assert qp.gain[-1].mean() > 0.15
    assert (qp.violated == 0).all()
    assert pcgrad.violated.mean() > 0.9
    by_noise = [learn_new_skill(kind, "qp", RUN, cosine).forgetting[-1].mean() for cosine in (1.0, 0.9, 0.71, 0.32)]
    assert by_noise == sorted(by_noise)
    # With a cosine of 0.32, qp forgets most of what plain ascent does.
    assert by_noise[-1] > 0.75 * none.forgetting[-1].mean()


@each_kind
def test_slack_buys_gain_with_forgetting_up_to_plain_ascent(kind: ProblemKind) -> None:
    points = [learn_new_skill(kind, "qp", RUN, epsilon=epsilon) for epsilon in (0.0, 0.03, 0.1, 0.3)]
    gains = [learning.gain[-1].mean() for learning in points]
    losses = [learning.forgetting[-1].mean() for learning in points]
    assert gains == sorted(gains)
    assert losses == sorted(losses)
    plain = learn_new_skill(kind, "none", RUN)
    np.testing.assert_array_equal(learn_new_skill(kind, "qp", RUN, epsilon=1.0).values, plain.values)


def test_gain_and_forgetting_start_at_zero_and_add_up_from_values() -> None:
    learning = learn_new_skill(Quadratic, "none", RUN)
    assert learning.values.shape == (41, 20, 4)
    assert (learning.gain[0] == 0).all()
    np.testing.assert_array_equal(learning.forgetting[-1], learning.values[0, :, :3] - learning.values[-1, :, :3])


def test_the_study_has_every_method_at_every_noise_and_every_slack() -> None:
    results = list(study(ProtectionRun(seeds=4, updates=5), cosines=[1.0, 0.5], epsilons=[0.1]))
    assert len(results) == 2 * (2 * 4 + 1)
    none = results[0]
    assert (none.method, none.cosine, none.epsilon) == ("none", 1.0, 0.0)
    assert none.unprotected == pytest.approx(none.forgetting.estimate)
    assert none.path[0] == (0, 0)
    assert none.path[-1] == pytest.approx((none.forgetting.estimate, none.gain.estimate))
    assert table(results).splitlines()[2].startswith(f"| quadratic | 1 | none | 0 | {none.gain.estimate:.2f} [")


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: ProtectionRun(seeds=0), "must be >= 1, got 0"),
        (lambda: learn_new_skill(Quadratic, "qp", RUN, cosine=0.0), r"cosine must lie in \(0, 1\]"),
        (lambda: learn_new_skill(Quadratic, "mgda", RUN), "method must be one of none, pcgrad"),
        (lambda: learn_new_skill(Quadratic, "qp", RUN, epsilon=-0.1), "epsilon must be >= 0"),
    ],
)
def test_mistakes_are_refused(mistake, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mistake()
