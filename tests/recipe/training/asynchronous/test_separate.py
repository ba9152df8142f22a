"""The trainer with engines apart: which engines answer, and that a step ends with a comparison of their weights."""

from types import SimpleNamespace
from typing import Any

import pytest
import ray
import torch
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync

from recipe.training.asynchronous.hooks import ContinuingClient
from recipe.training.asynchronous.trainer import SkillCreditSeparateTrainer
from workers.detached import SkillCreditDetachedWorker
from workers.digests import WeightsDifferError
from workers.digests.weights import SentWeights

STEP, ENGINES = 3, 2


class Actor:
    """Stands for verl's group of the trainer's ranks, of which the first sends."""

    world_size = 2

    def __init__(self, sent: SentWeights | None):
        self.sent = sent

    def execute_checkpoint_engine(self, methods: list[str]) -> list[Any]:
        assert methods == ["sent", "sent"]
        return [self.sent, None]


def trainer(sent: SentWeights | None, calls: list[Any], wrong: bool = False) -> SkillCreditSeparateTrainer:
    def called(method: str, args: tuple[Any, ...]) -> None:
        calls.append((method, args))
        if wrong:
            raise WeightsDifferError("after step 3 ...")

    made = SkillCreditSeparateTrainer.__new__(SkillCreditSeparateTrainer)
    made.global_steps = STEP
    made.actor_rollout_wg = Actor(sent)
    made.run_directory = SimpleNamespace(log_event=lambda name, **fields: calls.append((name, fields)))  # type: ignore[assignment]
    servers = [SimpleNamespace(collective_rpc=SimpleNamespace(remote=called)) for _ in range(ENGINES)]
    made.standalone_server_manager = SimpleNamespace(  # type: ignore[assignment]
        server_handles=servers, get_client=lambda client_cls: client_cls
    )
    return made


@pytest.fixture(autouse=True)
def _references_are_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get", lambda values: values)


def sent(step: int = STEP) -> SentWeights:
    noted = SentWeights(step, torch.float32)
    noted.add("a", torch.ones(2))
    return noted


def test_every_engine_compares_its_weights_with_those_sent_after_the_step():
    calls: list[Any] = []
    trainer(sent(), calls)._require_trained_weights()
    asked = ("require_weights", (sent().digests, STEP))
    assert calls == [asked, asked, ("weights", {"step": STEP, "compared": 1})]


def test_an_engine_with_other_weights_ends_the_run():
    with pytest.raises(WeightsDifferError):
        trainer(sent(), [], wrong=True)._require_trained_weights()


@pytest.mark.parametrize(("last", "named"), [(None, "but none"), (sent(2), "but those of step 2 last")])
def test_weights_that_were_not_sent_end_the_run(last: SentWeights | None, named: str):
    with pytest.raises(WeightsDifferError, match=f"not sent the weights of step 3, {named}"):
        trainer(last, [])._require_trained_weights()


def test_weights_are_compared_after_verl_has_sent_them(monkeypatch: pytest.MonkeyPatch):
    order: list[str] = []
    made = trainer(sent(), [])
    monkeypatch.setattr(SkillCreditSeparateTrainer.__mro__[1], "on_step_end", lambda self: order.append("step"))
    monkeypatch.setattr(SkillCreditSeparateTrainer.__mro__[1], "on_init_end", lambda self: order.append("start"))
    monkeypatch.setattr(SkillCreditSeparateTrainer, "_require_trained_weights", lambda self: order.append("compare"))
    made.on_init_end()
    made.on_step_end()
    assert order == ["start", "compare", "step", "compare"]


def test_engines_apart_answer_and_continue_what_a_transfer_interrupts():
    assert trainer(sent(), []).get_llm_client() is ContinuingClient


def test_our_worker_takes_the_place_of_verls(monkeypatch: pytest.MonkeyPatch):
    made = trainer(sent(), [])

    def verls(self: Any) -> None:
        self.role_worker_mapping = {Role.Actor: "verl's", Role.RefPolicy: "verl's"}

    monkeypatch.setattr(PPOTrainerSeparateAsync, "_init_resource_pool_mgr", verls)
    monkeypatch.setattr(ray, "remote", lambda actor: actor)
    made._init_resource_pool_mgr()
    assert made.role_worker_mapping == dict.fromkeys([Role.Actor, Role.RefPolicy], SkillCreditDetachedWorker)


def test_verl_finds_it_by_its_mode():
    assert TRAINER_REGISTRY["skillcredit_separate_async"] is SkillCreditSeparateTrainer
    assert SkillCreditSeparateTrainer.MODE == "separate_async"
