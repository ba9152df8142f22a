"""verl's agent-loop manager and worker: they know our agents, samples have seeds, reward workers may ask the policy.

Named by `actor_rollout_ref.rollout.agent.agent_loop_manager_class`.
"""

from collections.abc import Mapping
from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from recipe.training.failure_buffer import task_of
from rewards.policy import share_policy, wanted
from rewards.seeds import seed_of

# verl exports the Ray actor class; the class behind it is what can be extended.
_AgentLoopWorker = AgentLoopWorkerTQ.__ray_metadata__.modified_class  # type: ignore[attr-defined]


def sample_seed(rollout_seed: int, trajectory: Mapping[str, Any], row: Mapping[str, Any]) -> int:
    """The seed of one sample: by step, task and its number among the task's samples; another one in a validation.

    trajectory: what verl says of the sample. row: the fields of its data row.
    """
    task = task_of(row["extra_info"])
    return seed_of(rollout_seed, trajectory["step"], bool(trajectory["validate"]), task, row["session_id"])


@ray.remote
class SkillCreditAgentLoopWorker(_AgentLoopWorker):  # type: ignore[misc, valid-type]
    """verl's worker, which finds `code_agent` and `sql_agent` in its registry."""

    def __init__(self, *arguments: Any, **options: Any):
        import recipe.training.agents  # noqa: F401  (registers them)

        super().__init__(*arguments, **options)

    async def _run_agent_loop(self, sampling_params: dict[str, Any], trajectory: dict[str, Any], **row: Any) -> Any:
        """verl's, with a seed for this sample.

        Without one vLLM draws all samples from one generator, and which request comes first decides what each is.
        """
        if self.config.run.seeded_samples:
            rollout_seed = self.config.actor_rollout_ref.rollout.seed
            sampling_params = sampling_params | {"seed": sample_seed(rollout_seed, trajectory, row)}
        return await super()._run_agent_loop(sampling_params, trajectory, **row)


class SkillCreditAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager with our workers, which lets reward workers ask the policy where their credits need it."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.agent_loop_workers_class: Any = SkillCreditAgentLoopWorker
        self.policy = share_policy(self.config, self.llm_client) if wanted(self.config) else None
