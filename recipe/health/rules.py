"""Rules of a run's health: what each looks at, its healthy range, and what to try outside of it.

A rule reads the metrics of the run (means over the first and the last steps, because one step is noise) and reports
what it found, or nothing. Ranges are those of docs/reference/running.md, which holds the table of these rules.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from recipe.health.record import LAST, Record, clocks_differ, fall_from_peak, longest_quiet
from recipe.records.intervals import scatter
from recipe.records.run_directory import PROJECTION, REFUSED, STEP_TIME
from recipe.records.tables import CUT_SHARE, LARGEST_ERROR, cut_share
from workers.safety.levels import ROUNDING
from workers.skill_metrics import OVER_SKILLS

NEAR = 0.25
"""Share of the way from a protected skill's anchor to its line that must remain between its J and the line."""
_KEPT = 1 / 3
"""Share of its best accuracy that a skill keeps unless its policy collapsed."""
_READ = re.compile(
    "actor/(entropy|grad_norm|pg_clipfrac|ppo_kl)|credit/(fallback|unjudged_share)|critic/advantages/|reward/"
    f"|response_length/(clip_ratio|max)|(train_)?skill/.+/(accuracy|standard_error)|{STEP_TIME}"
    f"|training/rollout_probs_diff_mean|{PROJECTION}/(anchor/|displacement_norm|line/|nonfinite|undone|unprotected|verified)"
)
"""What the names of the metrics begin with that rules read."""


@dataclass(frozen=True)
class Rule:
    """One rule. metric: what it reads; healthy: the range; advice: what to try; problem: what was found, or None."""

    name: str
    metric: str
    healthy: str
    advice: str
    problem: Callable[[Record], str | None]


@dataclass(frozen=True)
class Finding:
    """A rule that a run broke, and the measured evidence."""

    rule: Rule
    seen: str


def _ended(run: Record) -> str | None:
    starts = [place for place, event in enumerate(run.events) if event["event"] == "start"]
    events = [event for event in run.events[starts[-1] if starts else 0 :] if event["event"] != REFUSED]
    if not events:
        return "it has no events: it ended before it began"
    last = events[-1]
    if last["event"] == "end":
        return None if run.rows else "it ended without metrics: `metrics.jsonl` is empty or lost"
    if last["event"] == "stopped":
        return str(last.get("reason"))
    failures = [event.get("error") for event in events if event["event"] == "failed"]
    if failures:
        return f"ended after step {run.updates} with {failures[-1]}"
    quiet = run.now - float(last.get("time", run.now))
    if quiet > longest_quiet(run.step_seconds):
        return f"nothing for {quiet / 60:.0f} minutes after '{last['event']}' of step {run.updates}: killed?"
    return clocks_differ(quiet) or None


def _finite(run: Record) -> str | None:
    for row in run.rows:
        if broken := sorted(name for name in row if _READ.match(name) and not math.isfinite(row[name])):
            more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
            return f"`{broken[0]}`{more}: NaN or infinite, first in step {row['step']:.0f}"
    return None


def _signal(run: Record) -> str | None:
    highest, lowest = (dict(run.steps_where(f"critic/advantages/{end}")) for end in ("max", "min"))
    empty = sum(highest[step] == lowest.get(step) == 0 for step in highest)
    if highest and empty > 0.2 * len(highest):
        return f"in {empty} of {len(highest)} steps every group's samples scored alike: nothing to learn from"
    reward = run.last("reward/acc")
    if reward is not None and not 0.02 <= reward <= 0.98:
        return f"{reward:.1%} of the last steps' samples are right: too hard or too easy"
    return None


def _learned(run: Record) -> str | None:
    values = run.values("reward/acc")
    first, last = run.first("reward/acc"), run.last("reward/acc")
    if first is None or last is None or len(values) < 4 * LAST or _collapsed(run):
        return None
    error = scatter(values) * math.sqrt(2 / LAST)
    if last - first < -2 * error:
        return f"accuracy of the steps' samples fell from {first:.1%} to {last:.1%}"
    if last - first < 2 * error:
        return f"accuracy of the steps' samples went from {first:.1%} to {last:.1%}: within noise"
    return None


def _skills(run: Record, kind: str) -> list[str]:
    """The skills with an accuracy under ``<kind>/``, sorted."""
    names = {key.split("/")[0] for key in run.named(f"{kind}/") if key.endswith("/accuracy")}
    return sorted(names - set(OVER_SKILLS))


def _collapsed(run: Record) -> str | None:
    """A skill's samples, since the next stage's skill may well start lower; all samples where skills have no names."""
    own = {name: f"train_skill/{name}/accuracy" for name in _skills(run, "train_skill")}
    for name, metric in (own or {"all": "reward/acc"}).items():
        found = run.steps_where(metric)
        steps, values = [step for step, _ in found], [value for _, value in found]
        if len(values) < 2 * LAST:
            continue
        best = max(range(len(values) - 2 * LAST + 1), key=lambda start: fmean(values[start : start + LAST]))
        before, last = fmean(values[best : best + LAST]), fmean(values[-LAST:])
        if last < before * _KEPT and before - last > 4 * scatter(values) * math.sqrt(2 / LAST):
            best_steps = f"steps {steps[best]} to {steps[best + LAST - 1]}"
            return f"{name}: right samples fell from {before:.1%} in {best_steps} to {last:.1%}"
    return None


def _entropy(run: Record) -> str | None:
    first, last = run.first("actor/entropy"), run.last("actor/entropy")
    if first is None or last is None or last >= 0.1 * first or (run.last("reward/acc") or 0.0) > 0.9:
        return None
    return f"fell from {first:.3g} to {last:.3g} nats per token"


def _gradient(run: Record) -> str | None:
    broken = sum(run.values(f"{PROJECTION}/nonfinite_gradients"))
    if broken:
        return f"{broken:.0f} gradients were not finite"
    values = run.values("actor/grad_norm")
    usual = sorted(values)[len(values) // 2] if values else 0.0
    if usual > 0 and max(values) > 20 * usual:
        step, value = max(run.steps_where("actor/grad_norm"), key=lambda pair: pair[1])
        return f"{value:.3g} in step {step}, {value / usual:.0f} times the median"
    return None


def _moved(run: Record) -> str | None:
    moved = run.values(f"{PROJECTION}/displacement_norm") or run.values("actor/grad_norm")
    return "0 in every step: nothing is trained" if moved and not any(moved) else None


def _policy_step(run: Record) -> str | None:
    kl, clipped = run.last("actor/ppo_kl"), run.last("actor/pg_clipfrac")
    if kl is not None and abs(kl) > 0.1:
        return f"an update moves the policy by a KL of {kl:.2g}"
    if clipped is not None and clipped > 0.3:
        return f"{clipped:.0%} of the tokens are clipped"
    return None


def _engine(run: Record) -> str | None:
    if run.last("async/stale_groups"):  # answers of earlier weights, which an asynchronous trainer expects
        return None
    mean = run.last("training/rollout_probs_diff_mean")
    return f"{mean:.3f} on average" if mean is not None and mean > 0.01 else None


def _cut(run: Record) -> str | None:
    limit = run.setting("data.max_response_length") or math.inf
    shares = [share for row in run.rows if (share := cut_share(row, limit)) is not None][-LAST:]
    share = fmean(shares) if shares else 0.0
    return f"{share:.1%} of the last steps' answers end at the limit" if share > CUT_SHARE else None


def _masked(run: Record) -> str | None:
    masked = [(step, share) for step, share in run.steps_where("reward/masked_share") if share > 0]
    if not masked:
        return None
    step, share = max(masked, key=lambda pair: pair[1])
    return f"samples without a verdict in {len(masked)} steps, most in step {step}: {share:.1%}"


def _sandbox(run: Record) -> str | None:
    timeouts = run.last_share("reward/error/timeout")
    if timeouts > 0.2:
        return f"{timeouts:.0%} of the programs time out"
    unjudged = run.last("credit/unjudged_share")
    if unjudged is not None and unjudged > 0.01:
        return f"{unjudged:.1%} of the replays found no worker"
    waited, busy = run.last("reward/judge_seconds"), run.last("reward/busy_seconds")
    if waited is not None and busy is not None and waited > max(1.0, 10 * busy):
        return f"an answer waits {waited:.1f} s for {busy:.2f} s of work"
    return None


def _guards(run: Record) -> str | None:
    shares = {name: run.last_share(f"reward/guard/{name}") for name in run.named("reward/guard/")}
    worst = max(shares, key=shares.__getitem__, default=None)
    if worst is not None and shares[worst] > 0.02:
        return f"{shares[worst]:.1%} of the last steps' answers show '{worst}'"
    before, after = ((at("reward/visible_acc") or 0.0) - (at("reward/acc") or 0.0) for at in (run.first, run.last))
    if len(run.values("reward/visible_acc")) >= 2 * LAST and after - before > 0.05:
        return f"answers that pass the shown tests alone grew from {before:.1%} to {after:.1%}"
    return None


def _generalises(run: Record) -> str | None:
    trained = run.values("train_skill/mean/accuracy")
    checked = run.values("skill/mean/accuracy")
    if len(trained) < 4 * LAST or len(checked) < 2:
        return None
    gain = (run.last("train_skill/mean/accuracy") or 0.0) - (run.first("train_skill/mean/accuracy") or 0.0)
    held = checked[-1] - checked[0]
    if gain > 0.1 and held < gain / 4:
        return f"{100 * gain:+.0f} points on training samples, {100 * held:+.0f} on validation prompts"
    return None


def _forgets(run: Record) -> str | None:
    falls = {skill: fall_from_peak(run.rows, skill) for skill in _skills(run, "skill")}
    lost = {skill: fall for skill, (fall, noise) in falls.items() if fall > max(0.05, noise)}
    return ", ".join(f"{skill} is {100 * fall:.0f} points below its peak" for skill, fall in lost.items()) or None


def _validation(run: Record) -> str | None:
    error = max((value for name in run.named("skill/") if name.endswith("/standard_error")
                 for value in run.values(f"skill/{name}")[-1:]), default=0.0)  # fmt: skip
    return f"up to {100 * error:.1f} points" if error > LARGEST_ERROR else None


FALLBACK = {
    "no_steps": ": they do not parse, or `credit.unit` finds none",
    "too_few_valid": ": nothing to compare, as in answers of one step",
    "zero": ": no replay changed the reward",
    "constant": ": each step counts as much as the others",
    "zero_advantage": ": all answers to their prompt have one reward",
}
"""What causes of credit's fallback mean."""


def _credit(run: Record) -> str | None:
    failed = [event.get("samples") for event in run.events if event["event"] == "credit_failed"]
    if failed:
        count = sum(number for number in failed if isinstance(number, int | float))
        return f"credit of {count:.0f} samples failed: events.jsonl has the reasons"
    rate = run.last("credit/fallback_rate")
    if rate is None or rate <= 0.5:
        return None
    causes = {name: run.last(f"credit/fallback/{name}") or 0.0 for name in run.named("credit/fallback/")}
    most = max(causes, key=causes.__getitem__, default=None)
    why = f", most for '{most}'{FALLBACK.get(most, '')}" if most else ""
    return f"{rate:.0%} of the responses keep their plain advantage{why}"


def _constraints(run: Record) -> str | None:
    values = run.values(f"{PROJECTION}/unprotected_skills")
    without = sum(value > 0 for value in values)
    if values and without > 0.5 * len(values):
        return f"a protected skill had no gradient in {without} of {len(values)} steps"
    return None


def _undone(run: Record) -> str | None:
    steps, undone = (sum(run.values(f"{PROJECTION}/{kind}_steps")) for kind in ("verified", "undone"))
    return f"{undone:.0f} of {steps:.0f} optimiser steps were undone" if undone > 0.1 * steps else None


def _below_line(run: Record) -> str | None:
    below = [
        (step, name)
        for name in run.named(f"{PROJECTION}/verified_level/")
        for step, level in _levels(run, name).items()
        if level.margin < -ROUNDING
    ]
    return f"{below[0][1]} ended step {below[0][0]} below its line" if below else None


def _near_line(run: Record) -> str | None:
    """The newest level of each skill, in units of the way from its anchor to its line; none where the two are one."""
    near = []
    for name in run.named(f"{PROJECTION}/verified_level/"):
        step, level = next(reversed(_levels(run, name).items()), (0, None))
        if level and level.room > 0 and -ROUNDING <= level.margin < NEAR * level.room:
            near.append(f"J of {name} is {level.margin:.2g} above its line after step {step}, "
                        f"{1 - level.margin / level.room:.0%} of the way from its anchor")  # fmt: skip
    return "; ".join(near) or None


class _Level(NamedTuple):
    """margin: J - line; room: anchor - line, NaN where no anchor was recorded."""

    margin: float
    room: float


def _levels(run: Record, name: str) -> dict[int, _Level]:
    """The level of a protected skill at each step that was verified."""
    kinds = ("verified_level", "line", "verified_margin", "anchor", "floor")
    levels, lines, margins, anchors, floors = (dict(run.steps_where(f"{PROJECTION}/{kind}/{name}")) for kind in kinds)
    found = {}
    for step in sorted(levels.keys() & lines.keys()):
        room = anchors.get(step, math.nan) - lines[step]
        # The margin is that of an update's worst optimiser step, the level that of its last one.
        margin = margins.get(step, levels[step] - lines[step])
        # A demanded gain: its line is above where J began, and only falling below the floor breaks the promise.
        found[step] = _Level(levels[step] - floors[step] if room < 0 and step in floors else margin, room)
    return found


_BATCH = "probe the data (`recipe.probe`); easier or more mixed problems, `reward...partial_credit=true`, more samples"
RULES = (
    Rule("ended", "`events.jsonl`", "ends with `end`", "the message names the cause; `run.name=` resumes", _ended),
    Rule("finite", "all below", "no NaN, no infinity", "a lower rate; read that step's `generations/`", _finite),
    Rule("signal", "`critic/advantages`, `reward/acc`", "groups differ in 80% of the steps; 2 to 98% right",
         _BATCH, _signal),
    Rule("learned", "`reward/acc`", "rises beyond noise in 20 steps",
         "a higher rate (`optim.lr`), more samples, more steps", _learned),
    Rule("collapsed", "`train_skill/<name>/accuracy`", "keeps a third of its best five steps",
         "an earlier checkpoint and a lower rate (`optim.lr`), `arm=kl`; read that step's `generations/`", _collapsed),
    Rule("entropy", "`actor/entropy`", "above a tenth of its start, unless 90% are right",
         "a lower rate, `arm=entropy`, `arm=kl`", _entropy),
    Rule("gradient", "`actor/grad_norm`", "below 20 medians",
         "a lower rate, `optim.clip_grad`; read that step's `generations/`", _gradient),
    Rule("moved", "`displacement_norm`", "above 0", "`optim.lr`, trainable weights, `signal`", _moved),
    Rule("policy step", "`actor/ppo_kl`, `pg_clipfrac`", "within 0.1; at most 0.3",
         "a lower rate, fewer `ppo_epochs` or mini-batches", _policy_step),
    Rule("engine", "`training/rollout_probs_diff_mean`", "at most 0.01",
         "`run.precision=float32`; vLLM samples from other weights than the actor trains", _engine),
    Rule("cut answers", "`response_length/clip_ratio`", "at most 5% at the limit",
         "raise `data.max_response_length`", _cut),
    Rule("masked", "`reward/masked_share`", "0", "the sandbox or a verifier fails: `events.jsonl`, `logs/`", _masked),
    Rule("sandbox", "`reward/error/timeout`, `judge_seconds`, `credit/unjudged_share`",
         "20%; 10 times `busy_seconds`, 1 s; 1%", "fewer replays (`credit.budget`), more machines (`sandbox.url`)",
         _sandbox),
    Rule("hacking", "`reward/guard/<sign>`, `reward/visible_acc`", "at most 2%; 5 points above `acc`, beyond the first",
         "read `generations/`; hidden tests, `reward...refuse`", _guards),
    Rule("generalises", "`train_skill` against `skill`", "a quarter of a gain above 10 points",
         "more distinct problems, fewer epochs, `arm=kl`", _generalises),
    Rule("forgetting", "`skill/<name>/below_peak`", "within noise and 5 points",
         "`projection=qp`, `arm=replay`: docs/reference/skill_safe.md", _forgets),
    Rule("validation", "`skill/<name>/standard_error`", "at most 0.02 for a claim",
         "`val_kwargs.n`, more prompts", _validation),
    Rule("credit", "`credit/fallback_rate`", "at most half", "docs/reference/credit.md names the causes", _credit),
    Rule("constraints", "`unprotected_skills`", "0 in half of the steps",
         "more memory prompts (`memory_per_protected`), easier ones", _constraints),
    Rule("undone", "`undone_steps`", "at most a tenth", "a lower rate, a larger `projection.epsilon`", _undone),
    Rule("line", "`verified_level` against `line`", "never below",
         "report it: verification should prevent it", _below_line),
    Rule("near line", "`verified_level`, `anchor`, `line`", f"{NEAR:.0%} of the way from anchor to line left",
         "a lower rate, more memory prompts (`memory_per_protected`)", _near_line),
)  # fmt: skip
"""All rules, in the order of their table."""


def findings(run: Record, names: Collection[str] | None = None) -> Iterator[Finding]:
    """What the run broke, in the order of the rules; names: of the rules to apply, all without it."""
    for rule in RULES:
        seen = rule.problem(run) if names is None or rule.name in names else None
        if seen is not None:
            yield Finding(rule, seen)
