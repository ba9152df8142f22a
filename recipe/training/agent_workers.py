"""verl's agent-loop manager and worker, with our agents, a seed per sample, and access to the policy for rewards.

Selected by `actor_rollout_ref.rollout.agent.agent_loop_manager_class`.
"""

from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from recipe.training.step_samples import sample_seed, sampling_of
from rewards.counterfactual import groups, policy
from rewards.requests import seed_key, tokens_once
from rewards.sample_credit import SampleCredit

# verl exports the Ray actor class; only the plain class behind it can be subclassed.
_AgentLoopWorker = AgentLoopWorkerTQ.__ray_metadata__.modified_class  # type: ignore[attr-defined]


@ray.remote
class SkillCreditAgentLoopWorker(_AgentLoopWorker):  # type: ignore[misc, valid-type]
    """verl's worker, with `code_agent` and `sql_agent` in its registry."""

    def __init__(self, *arguments: Any, **options: Any):
        import recipe.training.agents  # noqa: F401  (registers them)

        super().__init__(*arguments, **options)
        self.board = groups.SharedBoard(self.config) if groups.needs_siblings(self.config) else None
        self._met: set[tuple[str, int]] = set()

    async def _run_agent_loop(self, sampling_params: dict[str, Any], trajectory: dict[str, Any], **row: Any) -> Any:
        """Run verl's loop with this sample's seed, or greedily if its row requests it.

        Without a seed vLLM draws all samples from one generator, so the order of requests would decide the samples.
        A sample that has not met its siblings, such as one that failed, leaves the board, so that they do not wait.
        """
        rollout, mode = self.config.actor_rollout_ref.rollout, self.config.trainer.v1.trainer_mode
        sampling_params = tokens_once(sampling_of(sampling_params, row), rollout.name, mode)
        if self.config.run.seeded_samples:
            seed = sample_seed(rollout.seed, rollout.n, trajectory, row)
            sampling_params = sampling_params | {seed_key(rollout.name): seed}
        try:
            return await super()._run_agent_loop(sampling_params, trajectory, **row)
        finally:
            if self.board and not trajectory["validate"]:
                sample = str(row["uid"]), int(row["session_id"])
                if sample not in self._met:
                    self.board.leave(*sample)
                self._met.discard(sample)

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        """Also note whether the sample has met its siblings: one whose credit was estimated has."""
        await super()._compute_score(outputs, kwargs)
        if self.board is None:
            return
        credit = SampleCredit.of_info(outputs[-1].extra_fields.get("reward_extra_info") or {})
        if credit is not None and credit.cause != "failed":
            self._met.add((str(kwargs["uid"]), int(kwargs["session_id"])))


class SkillCreditAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager with our workers; shares the policy with the reward workers if their credits need it."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.agent_loop_workers_class: Any = SkillCreditAgentLoopWorker
        self.policy = policy.share_policy(self.config, self.llm_client) if policy.needs_policy(self.config) else None
