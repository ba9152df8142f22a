"""Our actor's worker for verl's trainer with engines apart: it can go back to the weights that the engines have."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.fsdp_utils import fsdp2_sharded_save_to_cpu

from workers.actor import SkillCreditActorRolloutRefWorker


class SkillCreditDetachedWorker(SkillCreditActorRolloutRefWorker, DetachActorWorker):
    """The Ray actor with policy and reference, whose engines are elsewhere.

    verl computes the log-probabilities that a step's later updates need with the weights of its first one.
    """

    @property
    def copy_handler(self) -> Callable[[nn.Module], Any]:
        """A copy of this rank's weights."""
        return copied_shards

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[attr-defined, untyped-decorator]  # verl adds members at run time
    def restore_model_from_cpu(self, n: int) -> None:
        """Load copy n; the next pass gathers from it, although a pass without gradients leaves gathered weights."""
        super().restore_model_from_cpu(n)
        assert self.actor is not None
        engine: Any = self.actor.engine
        for module in engine.module.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def copied_shards(module: nn.Module) -> Any:
    """What verl's function returns, apart from the weights also where these are in the CPU's memory already."""
    state, spec = fsdp2_sharded_save_to_cpu(module)
    if next(module.parameters()).device.type == "cpu":
        state = {name: (values.clone(), own) for name, (values, own) in state.items()}
    return state, spec
