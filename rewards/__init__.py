"""Rewards: verifiers of answers, and `compute_score`, the custom reward function that verl calls."""

import json
import logging
import math
import time
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from rewards import guardrails, registry, verl_rows
from rewards.guardrails import repeats_itself
from rewards.registry import Verifier
from rewards.sandbox.client import accounting
from rewards.settings import JudgeSettings, setting_names
from rewards.verdict import Verdict

logger = logging.getLogger(__name__)

__all__ = ["compute_score", "setting_names", "verifier_inputs"]

_logged_failures: set[str] = set()


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    **kwargs: Any,
) -> dict[str, float | str]:
    """Judge one answer: verl's custom reward function (`reward.custom_reward_function.path=pkg://rewards`).

    data_source: the verifier's name, or one of verl's (rewards/verl_rows.py). solution_str: the decoded response.
    ground_truth: the JSON of the row, as text or read, or what verl's preprocess scripts write.
    kwargs: fields of `rewards.settings.JudgeSettings`, in addition to what verl's reward managers pass themselves.

    Returns the same keys for every task and on every path: score, acc, visible_acc, format, error, pass_ratio,
    feasible, quality, repeat, guard, judge_seconds, busy_seconds.
    An answer that could not be judged (the sandbox is down, a verifier raised) has error "infrastructure" and a NaN
    score: the reward manager masks it. Raises ValueError for an unknown verifier, an unknown setting or an invalid
    value of a setting; the message lists the valid ones.
    """
    name = verl_rows.verifier_of(data_source)
    verifier = registry.get(name or data_source)
    settings = _settings(kwargs)
    started = time.perf_counter()
    with accounting.counted() as busy:
        try:
            if not isinstance(ground_truth, str):
                # Only text can be cached.
                ground_truth = json.dumps(ground_truth)
            if name:
                # Rows of code are of several forms.
                name, ground_truth = verl_rows.row_of(data_source, ground_truth)
                verifier = registry.get(name)
            verdict = await _guarded(verifier, solution_str, _parse(verifier.truth, ground_truth), settings)
            if not math.isfinite(verdict.score):
                raise ValueError(f"verifier '{data_source}' returned the score {verdict.score}")
        except Exception as error:
            _log_once(data_source, error)
            verdict = Verdict.not_judged()
    return verdict.as_reward(time.perf_counter() - started, busy.seconds)


def verifier_inputs(data_source: str, response: str, **kwargs: Any) -> list[str]:
    """The parts of a response that `compute_score` depends on: responses equal in them get the same verdict.

    kwargs: as passed to `compute_score`.
    """
    guard = guardrails.of_response(response, _settings(kwargs).max_characters)
    return [guard, registry.get(verl_rows.verifier_of(data_source) or data_source).reads(response)]


_given: dict[str, Any] = {}
_read = JudgeSettings()


def _settings(given: dict[str, Any]) -> JudgeSettings:
    """The parsed settings, cached by identity: a run passes the same objects with every answer."""
    global _given, _read
    if given.keys() != _given.keys() or any(value is not _given[key] for key, value in given.items()):
        _read = JudgeSettings.among(given)
        _given = given
    return _read


# A row is judged once per answer of its group, and again per replay.
@lru_cache(maxsize=256)
def _parse(truth: type[BaseModel], ground_truth: str) -> BaseModel:
    return truth.model_validate_json(ground_truth)


async def _guarded(verifier: Verifier, response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """The verdict on a response, or on an empty one if it shows a sign of hacking that this run refuses."""
    guard = guardrails.of_response(response, settings.max_characters)
    verdict = await verifier.judge("" if guard in settings.refuse else response, truth, settings)
    if verdict.guard in settings.refuse:
        refused = await verifier.judge("", truth, settings)
        verdict = replace(refused, guard=verdict.guard, visible=verdict.visible)
    if guard == "none":
        return verdict
    shown_guard = guard if verdict.guard == "none" else verdict.guard
    return replace(verdict, guard=shown_guard, repeats=repeats_itself(response))


def _log_once(data_source: str, error: Exception) -> None:
    """Log one traceback per kind of failure: when a sandbox is down, thousands of samples fail alike."""
    kind = f"{data_source}: {type(error).__name__}"
    if kind not in _logged_failures:
        _logged_failures.add(kind)
        logger.error("verifier %s could not judge an answer; such samples are masked", kind, exc_info=error)
