"""Every rule of a run's health: what breaks it, what does not, and that the docs hold its range."""

import math
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from recipe.doctor import FOUND, HEALTHY, REFUSED, diagnose, main, report_text, rules_table
from recipe.health.record import Record
from recipe.health.rules import RULES, findings
from recipe.records.run_directory import RunDirectory
from tests.composing import composed

ROOT = Path(__file__).parents[3]
NOW = 1e9
END = [{"event": "start", "time": NOW - 50}, {"event": "end", "time": NOW - 10}]
P = "actor/projection"


def _record(rows: Iterable[dict[str, float]] = (), events: list[dict] = END) -> Record:
    numbered = [{"step": step, **row} for step, row in enumerate(rows, start=1)]
    return Record(numbered, events, composed("experiment=quickstart"), NOW)


def _falling(metric: str, start: float, end: float, accuracy: float | None = None) -> list[dict[str, float]]:
    others = {} if accuracy is None else {"reward/acc": accuracy}
    return [{metric: start, **others}] * 10 + [{metric: end, **others}] * 10


def _validated(below: float, error: float) -> list[dict[str, float]]:
    return [{"skill/sql/accuracy": accuracy, "skill/sql/standard_error": error} for accuracy in (0.3, 0.9, 0.9 - below)]


def _levels(level: float, line: float, **others: float) -> list[dict[str, float]]:
    found = {"verified_level": level, "line": line} | others
    return [{f"{P}/{kind}/sql": value for kind, value in found.items()}]


def _trained(gain: float, held: float) -> list[dict[str, float]]:
    rows = _falling("train_skill/mean/accuracy", 0.3, 0.3 + gain)
    return [rows[0] | {"skill/mean/accuracy": 0.3}, *rows[1:-1], rows[-1] | {"skill/mean/accuracy": 0.3 + held}]


# A share of samples is written only in steps where it is not 0.
RIGHT: list[dict[str, float]] = [{"reward/acc": 0.5}]


def _share(metric: str, value: float) -> list[dict[str, float]]:
    return [RIGHT[0] | {f"reward/{metric}": value}]


# rule, a run that breaks it, what is said, the nearest run that does not break it
CASES = [
    ("finite", [{"actor/ppo_kl": 0.0}, {"actor/ppo_kl": math.nan, "reward/acc": math.inf}],
        "`actor/ppo_kl` and 1 more: NaN or infinite, first in step 2", [{"unread": math.nan}]),
    ("signal", [{"critic/advantages/max": 0, "critic/advantages/min": 0}] * 3 + [{"critic/advantages/max": 1,
        "critic/advantages/min": -1}] * 9, "in 3 of 12 steps", [{"critic/advantages/max": 0,
        "critic/advantages/min": 0}] * 2 + [{"critic/advantages/max": 1, "critic/advantages/min": -1}] * 10),
    ("signal", [{"reward/acc": 0.01}] * 5, "1.0% of the last steps' samples are right", [{"reward/acc": 0.03}] * 5),
    ("learned", _falling("reward/acc", 0.5, 0.3), "fell from 50.0% to 30.0%", _falling("reward/acc", 0.3, 0.5)),
    ("learned", [{"reward/acc": 0.4}, {"reward/acc": 0.6}] * 10, "from 48.0% to 52.0%: within noise",
        [{"reward/acc": 0.4}, {"reward/acc": 0.6}] * 9),
    ("collapsed", _falling("train_skill/sql/accuracy", 0.6, 0.1),
        "sql: right samples fell from 60.0% in steps 1 to 5 to 10.0%", _falling("train_skill/sql/accuracy", 0.6, 0.3)),
    ("collapsed", _falling("reward/acc", 0.6, 0.1), "all: right samples fell",
        [*_falling("reward/acc", 0.6, 0.1)[:10], *_falling("reward/acc", 0.1, 0.6)]),  # it came back
    ("collapsed", _falling("reward/acc", 0.6, 0.1), "all: right samples fell",  # the next stage's skill starts lower
        [row | {f"train_skill/{skill}/accuracy": row["reward/acc"]} for skill, row in zip(
            ["sql"] * 10 + ["trace"] * 10, _falling("reward/acc", 0.6, 0.1), strict=True)]),
    ("collapsed", _falling("reward/acc", 0.6, 0.1), "to 10.0%",
        [{"reward/acc": 0.2}, {"reward/acc": 0.0}] * 10 + [{"reward/acc": 0.0}] * 5),  # noise
    ("entropy", _falling("actor/entropy", 1.0, 0.09), "from 1 to 0.09", _falling("actor/entropy", 1.0, 0.11)),
    ("entropy", _falling("actor/entropy", 1.0, 0.09), "nats",
        _falling("actor/entropy", 1.0, 0.0, accuracy=0.95)),
    ("gradient", [{f"{P}/nonfinite_gradients": 1.0}], "1 gradients", [{f"{P}/nonfinite_gradients": 0.0}]),
    ("gradient", [{"actor/grad_norm": 1.0}] * 9 + [{"actor/grad_norm": 21.0}], "21 in step 10, 21 times",
        [{"actor/grad_norm": 1.0}] * 9 + [{"actor/grad_norm": 19.0}]),
    ("moved", [{f"{P}/displacement_norm": 0.0}] * 2, "nothing is trained", [{f"{P}/displacement_norm": 0.1}]),
    ("policy step", [{"actor/ppo_kl": -0.2}], "KL of -0.2", [{"actor/ppo_kl": 0.05}]),
    ("policy step", [{"actor/pg_clipfrac": 0.31}], "31% of the tokens", [{"actor/pg_clipfrac": 0.29}]),
    ("engine", [{"training/rollout_probs_diff_mean": 0.011}], "0.011", [{"training/rollout_probs_diff_mean": 0.009}]),
    ("engine", [{"training/rollout_probs_diff_mean": 0.011}], "0.011",
        [{"training/rollout_probs_diff_mean": 0.011, "async/stale_groups": 3.0}]),
    ("cut answers", [{"response_length/clip_ratio": 0.06, "response_length/max": 64}], "6.0%",
        [{"response_length/clip_ratio": 0.06, "response_length/max": 63}]),
    ("masked", [{"reward/masked_share": 0.0}, {"reward/masked_share": 0.25}], "in 1 steps, most in step 2: 25.0%",
        [{"reward/masked_share": 0.0}]),
    ("sandbox", _share("error/timeout", 0.21), "21% of the programs", _share("error/timeout", 0.19)),
    ("sandbox", _share("error/timeout", 0.21), "21% of the programs", _share("error/timeout", 0.9) + RIGHT * 5),
    ("sandbox", [{"credit/unjudged_share": 0.02}], "2.0% of the replays", [{"credit/unjudged_share": 0.005}]),
    ("sandbox", [{"reward/judge_seconds": 3.0, "reward/busy_seconds": 0.25}], "3.0 s for 0.25 s",
        [{"reward/judge_seconds": 3.0, "reward/busy_seconds": 0.35}]),
    ("hacking", _share("guard/special_casing", 0.03), "3.0% of the last steps' answers show 'special_casing'",
        _share("guard/special_casing", 0.01)),
    ("hacking", [{"reward/acc": 0.4, "reward/visible_acc": 0.5}] * 5 + [{"reward/acc": 0.4, "reward/visible_acc": 0.56}]
        * 5, "pass the shown tests alone grew from 10.0% to 16.0%", [{"reward/acc": 0.4, "reward/visible_acc": 0.5}] * 5
        + [{"reward/acc": 0.4, "reward/visible_acc": 0.54}] * 5),
    ("hacking", _share("guard/special_casing", 0.101) + RIGHT * 4, "2.0% of the last",  # 2.02%
        _share("guard/special_casing", 0.5) + RIGHT * 5),  # long ago
    ("generalises", _trained(0.2, 0.04), "+20 points on training samples, +4", _trained(0.2, 0.06)),
    ("forgetting", _validated(0.2, 0.04), "sql is 20 points below its peak", _validated(0.2, 0.05)),
    ("validation", _validated(0.0, 0.021), "up to 2.1 points", _validated(0.0, 0.02)),
    ("credit", [{"credit/fallback_rate": 0.6, "credit/fallback/too_few_valid": 0.4, "credit/fallback/cut": 0.2}],
        "60% of the responses keep their plain advantage, most for 'too_few_valid': nothing to compare, as in "
        "answers of one step", [{"credit/fallback_rate": 0.5}]),
    ("constraints", [{f"{P}/unprotected_skills": 1.0}] * 2 + [{f"{P}/unprotected_skills": 0.0}], "in 2 of 3 steps",
        [{f"{P}/unprotected_skills": 1.0}, {f"{P}/unprotected_skills": 0.0}]),
    ("undone", [{f"{P}/undone_steps": 1.0, f"{P}/verified_steps": 2.0}, {f"{P}/verified_steps": 7.0}],
        "1 of 9 optimiser steps", [{f"{P}/undone_steps": 1.0, f"{P}/verified_steps": 10.0}]),
    ("line", _levels(-1.2, -1.1), "sql ended step 1 below its line", _levels(-1.1, -1.1)),
    ("line", [row | {f"{P}/verified_margin/sql": -0.1} for row in _levels(-1.1, -1.1)], "sql ended step 1 below",
        [row | {f"{P}/verified_margin/sql": 0.0} for row in _levels(-1.1, -1.1)]),
    # A gain is demanded: the line is above the anchor, and J may not fall below where it was.
    ("line", _levels(-1.3, -1.1, anchor=-1.2, floor=-1.2, verified_margin=-0.2), "sql ended step 1 below",
        _levels(-1.15, -1.1, anchor=-1.2, floor=-1.2, verified_margin=-0.05)),
    ("near line", _levels(-1.08, -1.1, anchor=-1.0),
        "J of sql is 0.02 above its line after step 1, 80% of the way from its anchor",
        _levels(-1.07, -1.1, anchor=-1.0)),
    ("near line", _levels(-1.02, -1.1, anchor=-1.0) + _levels(-1.09, -1.1, anchor=-1.0), "after step 2, 90% of the way",
        _levels(-1.09, -1.1, anchor=-1.0) + _levels(-1.02, -1.1, anchor=-1.0)),
    ("near line", _levels(-1.08, -1.1, anchor=-1.0), "J of sql", _levels(-1.1, -1.1, anchor=-1.1)),  # no room at all
    ("near line", _levels(-1.08, -1.1, anchor=-1.0), "J of sql", _levels(-1.2, -1.1, anchor=-1.0)),  # below: `line`
]  # fmt: skip

ENDED = [
    ([*END[:1], {"event": "failed", "time": NOW, "error": "OutOfMemory: 3 GiB"}], "OutOfMemory: 3 GiB"),
    ([*END[:1], {"event": "update", "time": NOW - 700}], "nothing for 12 minutes after 'update'"),
    ([*END[:1], {"event": "update", "time": NOW + 300}], "5 minutes ahead of this machine's clock: the clocks differ"),
    ([], "ended before it began"),
    (END, "ended without metrics"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "broken", "said", "healthy"), CASES)
def test_a_rule_finds_what_breaks_it_and_nothing_just_inside_its_range(rule, broken, said, healthy):
    found = {one.rule.name: one.seen for one in findings(_record(broken))}
    assert said in found[rule]
    assert rule not in {one.rule.name for one in findings(_record(healthy))}


@pytest.mark.parametrize(("events", "said"), ENDED)
def test_a_run_that_did_not_end_is_reported_with_its_reason(events, said):
    [found] = findings(_record(events=events))
    assert found.rule.name == "ended"
    assert said in found.seen


def test_a_run_under_way_is_no_finding():
    assert not list(findings(_record(events=[*END[:1], {"event": "update", "time": NOW - 500}])))
    slow = [{"timing_s/step": 300.0}]
    assert not list(findings(_record(slow, events=[*END[:1], {"event": "update", "time": NOW - 1400}])))


def test_a_run_that_failed_and_was_resumed_is_under_way():
    failed = [END[0], {"event": "failed", "time": NOW - 40, "error": "RayTaskError"}]
    assert not list(findings(_record(events=[*failed, {"event": "start", "time": NOW - 30}])))
    assert not list(findings(_record([{}], events=[*failed, *END])))


def test_failed_credit_is_reported_even_if_few_fall_back():
    [found] = findings(_record([{}], events=[END[0], {"event": "credit_failed", "time": NOW, "samples": 3}, END[1]]))
    assert "credit of 3 samples failed" in found.seen


def test_failed_credit_without_a_count_is_still_a_finding():
    [found] = findings(_record([{}], events=[END[0], {"event": "credit_failed", "time": NOW}, END[1]]))
    assert (found.rule.name, found.seen[:19]) == ("credit", "credit of 0 samples")


def test_a_run_without_updates_is_not_called_healthy():
    assert report_text(Path("r"), [], 0) == "r (0 updates): no finding, but no update to judge either"
    assert report_text(Path("r"), [], 1) == "r (1 updates): healthy"


def test_every_rule_has_a_case():
    assert {rule.name for rule in RULES} == {case[0] for case in CASES} | {"ended"}


def test_the_docs_hold_the_table_of_rules():
    assert rules_table() in (ROOT / "docs/reference/running.md").read_text()


@pytest.mark.slow
def test_advice_names_keys_that_exist():
    config = composed("experiment=quickstart", "projection=qp", "credit=counterfactual")
    known = _keys(config)
    named = {word.partition("=")[0] for rule in RULES for word in re.findall(r"`([^`]+)`", rule.advice)}
    dotted = {word for word in named if "." in word and "..." not in word and not word.startswith("recipe")}
    assert len(dotted) > 5
    unknown = {word for word in dotted - {"events.jsonl"} if not any(f".{key}".endswith(f".{word}") for key in known)}
    assert not unknown


def _keys(node, prefix: str = "") -> set[str]:
    found = set()
    for key in node:
        path = f"{prefix}{key}"
        found.add(path)
        value = node._get_node(key)
        if hasattr(value, "keys"):
            found |= _keys(value, f"{path}.")
    return found


@pytest.mark.slow
def test_a_folder_of_a_run_is_reported_in_words_with_its_exit_status(tmp_path, capsys):
    run = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    run.write_config(composed("experiment=quickstart"))
    for step in range(1, 6):
        run.log_metrics(step, {"reward/acc": 0.5, "training/rollout_probs_diff_mean": 0.2})
    run.log_event("end")
    text, status = diagnose(run.path, NOW)
    assert status == FOUND
    assert "(5 updates): 1 finding\n  - engine: 0.200 on average\n" in text
    assert "`run.precision=float32`" in text
    (run.path / "metrics.jsonl").unlink()
    assert main([str(run.path)]) == FOUND
    assert "(0 updates): 1 finding\n  - ended: it ended without metrics" in capsys.readouterr().out
    run.log_metrics(1, {"reward/acc": 0.5})
    assert main([str(run.path)]) == HEALTHY
    assert main([str(tmp_path), str(run.path)]) == REFUSED
    assert f"{tmp_path} is not a run directory" in capsys.readouterr().err


def test_what_a_model_or_an_error_wrote_reaches_no_terminal():
    rows = _share("guard/\x1b]0;evil\x07", 0.5)
    events = [{"event": "failed", "time": NOW, "error": "bad \x1b[2J answer"}]
    text = report_text(Path("r"), list(findings(_record(rows, events))), 1)
    assert "bad ␛[2J answer" in text
    assert "'␛]0;evil␇'" in text
