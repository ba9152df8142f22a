"""Counterfactual replay: credits of steps from the verifier's score of a solution with one step changed.

With R the verifier's score in [0, 1], tau the solution and t = 1..T its steps (tau in the layout of its replays, since
a verifier may depend on layout):

    delete, replace   c_t = R(tau) - R(tau with step t changed)
    truncate          c_t = R(tau up to t) - R(tau up to t-1); the credits add up to R(tau) - R(nothing)
    shapley           mean gain of step t over sampled orders; the credits add up to R(tau) - R(nothing)
    resample          c_t = V(tau up to t) - V(tau up to t-1), V the mean R of the policy's continuations of a prefix
    returns           c_t = discount^(T-t) R(tau), without replays: only a comparison with siblings makes it a credit

The first three may share the budget: `methods` combines their credits.

Estimand: except with `resample` the suffix is unchanged, so a credit is the step's direct effect (a plan or a comment
has none). `resample` measures the total effect, which includes the step's effect on everything after it.

Sources: Shapley, "A value for n-person games" (1953); Kazemnejad et al., "VinePPO" (arXiv 2410.01679), for the value
of a prefix by its continuations; ../docs/reference/credit.md for the choice between them.
"""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rewards.analysis.parsing import parse
from rewards.counterfactual.coverage import unexecuted_steps
from rewards.counterfactual.interventions import Edits, ProgramEdits, TurnEdits, breaking_steps
from rewards.counterfactual.methods import MethodInputs, credits_by, step_order
from rewards.counterfactual.plan import BY_STEP, CHOICES, METHODS, Choice, Method, Plan
from rewards.counterfactual.replayer import MAX_TESTS, Array, Outcome, Replay, Replayer, Resume, TimedOut, Verify
from rewards.counterfactual.segments import NoSteps, Step, segment
from rewards.counterfactual.siblings import Alternatives, Keyed, Sibling, equal_steps, of_programs, of_turns
from rewards.counterfactual.step_keys import state_keys
from rewards.extraction import find_block

__all__ = [
    "CHOICES",
    "METHODS",
    "Choice",
    "Credits",
    "Method",
    "Outcome",
    "Plan",
    "Resume",
    "Sibling",
    "TimedOut",
    "Verify",
    "estimate",
]


@dataclass(frozen=True)
class Credits:
    """Steps of one solution, their credits, and the cost of the estimation.

    values: one per step; NaN for a step without a valid intervention, beyond the budget, or equal in all siblings.
    keys: what each step is, equal for the same step of siblings; "" if that is not known.
    tests: (steps, tests) the step's part in each test, of which its credit is the mean; no tests if they are not known.
    whole: (tests,) what the solution itself got in each test, where a step's one replay got that minus the step's part
    (`delete` or `replace` alone); empty otherwise.
    replayed: the replays, as a reader looks at them.
    cause: why no step has a credit; "" if some have. unparsable: 1 if the code does not parse: its steps have no keys.
    equal: steps left out since all siblings have them alike; unreached, unexecuted: those with credit 0 without a
    replay, since no run can reach them or no test executed them.
    asked, invalid, unjudged, timeouts, replays: as in `sample_credit.ReplayCounts`. seconds: wall time.
    """

    steps: list[Step] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    tests: Array = field(default_factory=lambda: np.zeros((0, 0)))
    whole: Array = field(default_factory=lambda: np.zeros(0))
    replayed: list[Replay] = field(default_factory=list)
    cause: str = ""
    unparsable: int = 0
    equal: int = 0
    unreached: int = 0
    unexecuted: int = 0
    asked: int = 0
    invalid: int = 0
    unjudged: int = 0
    timeouts: int = 0
    replays: int = 0
    seconds: float = 0.0


async def estimate(
    solution: str,
    verify: Verify,
    plan: Plan,
    *,
    score: float | Outcome,
    rng: random.Random | None = None,
    shared: str = "",
    siblings: Sequence[Sibling] = (),
    asked: frozenset[str] = frozenset(),
    turns: Sequence[tuple[int, int]] = (),
    resume: Resume | None = None,
    judge_new: Verify | None = None,
    measure: Verify | None = None,
) -> Credits:
    """Estimate the credits of one solution whose score is known.

    verify: judges a changed solution; any exception but `TimedOut` counts as "could not be judged".
    score: R(tau), in [0, 1]. rng: for uniform choice, orders and siblings; the same seed gives the same credits.
    shared: text that decides between equally long steps, the same in all solutions of the group.
    siblings: the solutions of the group, for `replace`, the informative choice and the keys; this one may be among
    them. asked: names that the problem mentions. turns: for unit "turn", the characters [start, end) of each assistant
    turn in the solution. resume: the policy, for `resample`. judge_new: judges its answers, by default verify.
    measure: as `verify`, and reports the statements that were executed, for `coverage`.
    """
    started = time.perf_counter()
    try:
        steps = segment(solution, plan.unit, text_steps=plan.text_steps, turns=turns)
    except NoSteps as reason:
        return Credits(cause=f"no_steps: {reason}")
    edits, own, others = _edits(solution, steps, plan, siblings, asked)
    unparsable = _unparsable(solution, plan)

    def without_credit(cause: str) -> Credits:
        nothing = np.full((len(steps), 0), np.nan)
        seconds = time.perf_counter() - started
        return Credits(
            steps, [math.nan] * len(steps), list(own.keys), nothing,
            cause=cause, unparsable=int(unparsable), seconds=seconds,
        )  # fmt: skip

    # An agent that is right in its first turn has one step, which other samples of the group compare theirs with.
    if len(steps) < 2 and plan.unit != "turn" and plan.methods != ("returns",):
        return without_credit("unparsable" if unparsable else "one_step")
    replayer = Replayer(verify, resume, measure, judge_new, all_or_nothing=plan.all_or_nothing)
    outcome = score if isinstance(score, Outcome) else Outcome(score)
    reference, cause = await _reference(edits, plan, outcome, replayer)
    if cause:
        return without_credit(cause)
    reference = replayer.counted(reference)
    replayer.tests = len(reference.tests) if len(reference.tests) <= MAX_TESTS else 0
    rng = rng or random.Random(0)
    idle = unexecuted_steps(solution, steps, reference.executed) if plan.coverage else frozenset()
    chosen = [index for index in step_order(steps, own, others, plan.choice, rng, shared) if index not in idle]
    order = _breaking_first(chosen, solution, steps, plan)
    work = MethodInputs(
        edits, steps, plan, reference.vector(replayer.tests), rng, replayer, order, Alternatives(own, others),
        plan.budget, idle,
    )  # fmt: skip
    found = _found(await credits_by(work), work, own, others, started)
    return replace(found, unparsable=int(unparsable))


def _found(values: Array, work: MethodInputs, own: Keyed, others: Sequence[Keyed], started: float) -> Credits:
    """What the replays found. values: (K, 1 + tests), changed in place: 0 for steps that need no replay."""
    plan, idle, replayer = work.plan, work.idle, work.replayer
    equal, unreached = _left_out(own, others, plan)
    values[unreached] = 0.0
    if set(plan.methods) <= set(BY_STEP):
        values[sorted(idle)] = 0.0
    cause = "equal_steps" if len(equal) == len(work.steps) else "no_valid_replay"
    return Credits(
        list(work.steps),
        values[:, 0].tolist(),
        list(own.keys),
        values[:, 1:],
        work.whole[1:] if plan.methods in (("delete",), ("replace",)) else np.zeros(0),
        replayer.replays(),
        cause="" if np.isfinite(values[:, 0]).any() else cause,
        equal=len(equal - idle),
        unreached=len(unreached),
        unexecuted=len(idle),
        asked=replayer.asked,
        invalid=replayer.invalid,
        unjudged=replayer.unjudged,
        timeouts=replayer.timeouts,
        replays=replayer.judged,
        seconds=time.perf_counter() - started,
    )


def _breaking_first(order: Sequence[int], solution: str, steps: Sequence[Step], plan: Plan) -> list[int]:
    """The order, begun with what a program that does not parse fails by."""
    breaking = breaking_steps(solution, steps) if plan.unit in ("statement", "line") else []
    return sorted(order, key=lambda index: index not in breaking)


def _edits(
    solution: str, steps: list[Step], plan: Plan, siblings: Sequence[Sibling], asked: frozenset[str]
) -> tuple[Edits, Keyed, list[Keyed]]:
    """The edits of a solution, the keys of its steps, and the siblings with theirs."""
    if plan.unit == "token":
        pieces = tuple(solution[step.start : step.end] for step in steps)
        return ProgramEdits(solution, steps), of_turns(Sibling(pieces, math.nan, ("",) * len(pieces))), []
    if plan.unit != "turn":
        own, others = of_programs(solution, siblings, plan.unit, plan.text_steps, asked)
        return ProgramEdits(solution, steps), own, others
    actions = tuple(solution[step.start : step.end] for step in steps)
    states = tuple(state_keys(solution, [(step.start, step.end) for step in steps]))
    same = [sibling for sibling in siblings if (sibling.text, sibling.states) == (actions, states)]
    own = of_turns(same[0] if same else Sibling(actions, math.nan, states))
    others = [of_turns(sibling) for sibling in siblings if sibling not in same]
    return TurnEdits(actions), own, others


def _unparsable(solution: str, plan: Plan) -> bool:
    """Whether the steps should be statements, but the code has none since it does not parse."""
    block = find_block(solution, "python") if plan.unit == "statement" else None
    return block is not None and parse(solution[slice(*block)]) is None


def _left_out(own: Keyed, others: Sequence[Keyed], plan: Plan) -> tuple[set[int], list[int]]:
    """The steps that the informative choice leaves out: those equal in all siblings, and those that no run reaches."""
    if plan.choice != "informative" or not set(plan.methods) <= set(BY_STEP):
        return set(), []
    equal = equal_steps(own, others)
    unreached = [index for index, reached in enumerate(own.reached) if not reached]
    return equal.difference(unreached), unreached


async def _reference(edits: Edits, plan: Plan, own: Outcome, replayer: Replayer) -> tuple[Outcome, str]:
    """The outcome of the solution in the layout of its replays, to compare them with; and why there is none, else "".

    A reference that equals the solution's own outcome also shows that the program is not flaky. A different one may be
    due to the layout: then the solution as written decides.
    """
    if plan.methods == ("returns",):
        return own, ""
    written = edits.whole()
    only_continues = plan.methods == ("resample",) and plan.prefixes == "even"
    rewritten = written if only_continues else edits.rewritten()
    replayer.written, replayer.rewritten = written, rewritten or written
    if rewritten is None or (rewritten == written and not plan.check_flaky and not plan.coverage):
        return own, ""
    reference = again = await replayer.outcome(rewritten, fresh=True, measured=plan.coverage)
    if math.isfinite(reference.score) and not reference.agrees(own) and rewritten != written:
        again = await replayer.outcome(written, fresh=True) if plan.check_flaky else own
    if not (math.isfinite(reference.score) and math.isfinite(again.score)):
        return reference, "unjudged"
    return reference, "" if again.agrees(own) else "flaky"
