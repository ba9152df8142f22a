"""Reward manager for verl: it scores samples, and gives those of a training step credits for their steps.

Samples that could not be verified are masked and counted, never scored.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RawRewardFn, RewardManagerBase

from rewards import compute_score, registry, verifier_inputs
from rewards.counterfactual.groups import SharedBoard, skips
from rewards.counterfactual.judging import Answers
from rewards.counterfactual.plan import Plan
from rewards.counterfactual.policy import SharedPolicy, needs_policy
from rewards.counterfactual.service import CreditService, RolloutSample
from rewards.environments import EPISODE, Episode, first_acceptance, of_config
from rewards.skills import skill_assigner, task_of
from rewards.verdict import Verdict

logger = logging.getLogger(__name__)


# Field that the trainer adds to the samples of a training step.
TRAINED_ON = "credit_wanted"


def credit_service(config: Any) -> CreditService | None:
    """The service configured by `credit.*`; None for credit=off."""
    credit = config.get("credit")
    if credit is None or credit.kind == "off":
        return None
    plan, board = Plan.of_config(credit), SharedBoard(config)
    return CreditService(plan, board, has_advantage=skips(config), seed=credit.seed, cache_size=credit.cache_size)


def has_our_rewards(config: Any) -> bool:
    """Whether answers are scored by `compute_score`, not by a user's own reward function."""
    function = OmegaConf.select(config, "reward.custom_reward_function")
    return function is not None and (function.path, function.name) == ("pkg://rewards", compute_score.__name__)


def _reader(config: Any) -> Callable[[str, str, str], Sequence[str]]:
    """A function of (data source, group, text): the parts that the verdict on this text depends on.

    For a user's own reward function these are the whole text and the group, as it may know more of the prompt than
    the ground truth.
    """
    if not has_our_rewards(config):
        return lambda data_source, group, text: [group, text]
    # Read once, as verl does: OmegaConf took a sixth of a reward worker's time. The same objects: `_settings` caches by
    # identity.
    settings = dict(config.reward.custom_reward_function.get("reward_kwargs") or {})
    return lambda data_source, group, text: verifier_inputs(data_source, text, **settings)


class SkillCreditRewardManager(RewardManagerBase):
    """Decodes a finished response, asks the verifier, and returns its numbers with a ``masked`` flag."""

    tokenizer: Any

    def __init__(self, config: Any, tokenizer: Any, compute_score: RawRewardFn, **kwargs: Any):
        super().__init__(config, tokenizer, compute_score)
        if compute_score is None:
            raise ValueError("reward.custom_reward_function is empty: use reward=verified, or set your own function")
        skills = config.skills
        self.skill_of = skill_assigner(skills.by, skills.column, skills.function)
        self.credits = credit_service(config)
        self._is_ours, self._reads = has_our_rewards(config), _reader(config)
        self._answers = Answers()
        self.policy = SharedPolicy(config.actor_rollout_ref.rollout.response_length) if needs_policy(config) else None
        self._reported: set[str] = set()

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """The reward of one trajectory (its last sequence): ``reward_score`` and ``reward_extra_info``.

        The extra info has the same keys on every path: those of the verifier, ``masked`` (1.0 if verification failed;
        the score is then 0.0 and the trainer leaves the sample out), ``skill`` and ``task`` (the row's id); for an
        agent also ``first_acc``, whether its first action would have been accepted.
        """
        item = data[-1:][0]
        fields = item.non_tensor_batch
        token_ids = _response_ids(item)
        text = self.tokenizer.decode(token_ids, skip_special_tokens=True)
        played = (fields.get("tool_extra_fields") or {}).get(EPISODE)
        episode = Episode(**played) if played else None
        if episode and episode.failed:
            info = Verdict.not_judged().as_reward()
        else:
            answer = self._turn(episode, episode.answer, token_ids) if episode else text
            info = await self._verdict(fields, answer)
        prompt_ids = _prompt_ids(item) if self.policy else []
        credit = await self._credit(fields, text, prompt_ids, token_ids, info, episode)
        masked = info.get("error") == "infrastructure" or not math.isfinite(float(info["score"]))
        if masked:
            info = {key: 0.0 if isinstance(value, float) else value for key, value in info.items()}
        task = task_of(fields.get("extra_info") or {})
        info |= {"masked": float(masked), "skill": self.skill_of(fields), "task": task}
        first = {"first_acc": await self._first(fields, episode, token_ids, info)} if episode else {}
        return {"reward_score": float(info["score"]), "reward_extra_info": info | first | credit}

    def _turn(self, episode: Episode, number: int, token_ids: list[int]) -> str:
        start, end = episode.turns[number]
        text: str = self.tokenizer.decode(token_ids[start:end], skip_special_tokens=True)
        return text

    async def _first(self, fields: Any, episode: Episode, token_ids: list[int], info: dict[str, Any]) -> float | None:
        first, answer = (self._turn(episode, number, token_ids) for number in (0, episode.answer))
        return await first_acceptance(first, answer, episode.first_failed, info, partial(self._verify, fields))

    async def _verdict(self, fields: Any, answer: str) -> dict[str, Any]:
        """The verdict on the sample's answer. Equal answers of a group are judged once; by a user's own function or
        verifier, which may draw, only where credit compares answers."""
        if self.credits and TRAINED_ON in fields:
            answers = self.credits.answers
        elif self._is_ours and registry.is_ours(str(fields["data_source"])) and "uid" in fields:
            answers = self._answers  # their own: validations would take the place of answers whose replays are to come
        else:
            return await self._verify(fields, answer)
        return await answers.verdict(str(fields["uid"]), answer, partial(self._verify, fields))

    async def _credit(
        self,
        fields: Any,
        text: str,
        prompt_ids: list[int],
        token_ids: list[int],
        info: dict[str, Any],
        episode: Episode | None,
    ) -> dict[str, Any]:
        """The sample's credits; empty if they are off or the sample is not trained on (validation)."""
        if self.credits is None or TRAINED_ON not in fields:
            return {}
        data_source = str(fields["data_source"])
        sample = RolloutSample(
            group=str(fields["uid"]),
            number=int(fields["session_id"]),
            problem=[data_source, str(fields["reward_model"]["ground_truth"])],
            text=text,
            token_ids=token_ids,
            info=info,
            continue_prefix=partial(self.policy.continue_prefix, prompt_ids) if self.policy else None,
            reads=partial(self._reads, data_source, str(fields["uid"])),
            step=int(fields.get("global_steps", 0)),
        )
        if episode:
            environment = partial(of_config, self.config, episode.agent, sample.problem[1])
            sample = replace(sample, turns=episode.turns, answer=episode.answer, environment=environment)
        credit = await self.credits.credit(sample, self.tokenizer, partial(self._verify, fields))
        return credit.as_info()

    async def _verify(self, fields: Any, text: str) -> dict[str, Any]:
        """The verifier's reward of this text as the answer to a row's problem."""
        assert self.compute_score is not None
        problem = {
            "data_source": fields["data_source"],
            "ground_truth": fields["reward_model"]["ground_truth"],
            "extra_info": dict(fields.get("extra_info") or {}),
        }
        try:
            return dict(await self.compute_score(solution_str=text, **problem))
        except Exception as error:  # any error of a verifier costs this sample, not the run
            self._report(error)
            return Verdict.not_judged().as_reward()

    def _report(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text not in self._reported:
            self._reported.add(text)
            logger.exception("a verifier raised; its samples are masked")


def _prompt_ids(item: Any) -> list[int]:
    """A prompt's tokens, without the padding before them."""
    prompt_ids = item.batch["prompts"]
    token_ids: list[int] = prompt_ids[item.batch["attention_mask"][: len(prompt_ids)].bool()].tolist()
    return token_ids


def _response_ids(item: Any) -> list[int]:
    response_ids = item.batch["responses"]
    length = int(item.batch["attention_mask"][-response_ids.shape[-1] :].sum())
    token_ids: list[int] = response_ids[:length].tolist()
    return token_ids
