"""verl's reward manager with our rule: what could not be verified is masked and counted, never scored."""

import logging
import math
from typing import Any

from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RawRewardFn, RewardManagerBase

from rewards.verdict import Verdict

logger = logging.getLogger(__name__)


class SkillCreditRewardManager(RewardManagerBase):
    """Decodes a finished response, asks the verifier, and returns its numbers with a ``masked`` flag."""

    tokenizer: Any

    def __init__(self, config: Any, tokenizer: Any, compute_score: RawRewardFn, **kwargs: Any):
        super().__init__(config, tokenizer, compute_score)
        if compute_score is None:
            raise ValueError("reward.custom_reward_function is empty: use reward=verified, or name your own function")
        self.skill_column = config.skills.column
        self._reported: set[str] = set()

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """The reward of one trajectory (its last sequence): ``reward_score`` and ``reward_extra_info``.

        The extra info has the same keys on every path: those of the verifier, ``masked`` (1.0 where the
        verification could not be done; the score is 0.0 there and the trainer leaves the sample out) and
        ``skill``.
        """
        item = data[-1:][0]
        fields = item.non_tensor_batch
        extra_info = dict(fields.get("extra_info") or {})
        info = await self._verify(
            data_source=fields["data_source"],
            solution_str=self._response_text(item),
            ground_truth=fields["reward_model"]["ground_truth"],
            extra_info=extra_info,
        )
        masked = info.get("error") == "infrastructure" or not math.isfinite(float(info["score"]))
        if masked:
            info = {key: 0.0 if isinstance(value, float) else value for key, value in info.items()}
        info |= {"masked": float(masked), "skill": str(fields.get(self.skill_column, "unknown"))}
        return {"reward_score": float(info["score"]), "reward_extra_info": info}

    def _response_text(self, item: Any) -> str:
        response_ids = item.batch["responses"]
        length = int(item.batch["attention_mask"][-response_ids.shape[-1] :].sum())
        return self.tokenizer.decode(response_ids[:length], skip_special_tokens=True)

    async def _verify(self, **arguments: Any) -> dict[str, Any]:
        assert self.compute_score is not None
        try:
            return dict(await self.compute_score(**arguments))
        except Exception as error:  # whatever a verifier raises, the run goes on without this sample
            self._report(error)
            return Verdict.not_judged().as_reward(0.0)

    def _report(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text not in self._reported:
            self._reported.add(text)
            logger.exception("a verifier raised; its samples are masked")
