"""What a program's time limit counts, on a clock of the test's own."""

import socket
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from rewards.sandbox.worker import execution, zygote
from rewards.sandbox.worker.execution import LEAST_PATIENCE, PATIENCE, Child, Clock


@dataclass
class WaitingChild(Child):
    """A program that has waited for a CPU `waited` seconds since its start; and then `share` of the time."""

    time: SimpleNamespace
    waited: float = 0.0
    share: float = 0.0
    report: None = None
    began: float = field(default=0.0)

    def time_waited(self) -> float:
        self.waited, self.began = self.waited + self.share * (self.time.now - self.began), self.time.now
        return self.waited


class InstantClock(Clock):
    """Waits for nothing: every wait lasts until its deadline."""

    def __init__(self, time: SimpleNamespace) -> None:
        super().__init__(socket.socket())
        self.time = time

    def watch(self, done, children, deadline, *, cancellable=True):
        self.time.now = max(self.time.now, deadline)
        return done()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    time = SimpleNamespace(now=0.0, withheld=0.0)
    monkeypatch.setattr("rewards.sandbox.worker.execution.time.monotonic", lambda: time.now)
    monkeypatch.setattr(execution, "_seconds_withheld", lambda: time.withheld)
    return time


@pytest.mark.parametrize(
    ("waited", "share", "ends"),
    [
        (0.0, 0.0, 2.0),
        (5.0, 0.0, 2.0),  # in earlier cases of the same program
        (0.0, 0.5, 4.0),
        (5.0, 0.75, 8.0),
        (0.0, 1.0, 2.0 * PATIENCE + LEAST_PATIENCE),
    ],
)
def test_a_limit_counts_the_time_in_which_the_program_did_not_wait(time, waited, share, ends):
    clock = InstantClock(time)
    assert not clock.limited(lambda: False, [WaitingChild(time, waited, share)], 2.0)
    assert time.now == pytest.approx(ends, abs=0.01)
    assert clock.charged == pytest.approx(min(2.0, ends * (1 - share)), abs=0.01)


def test_what_the_host_or_the_machine_withholds_is_not_charged(time):
    clock = InstantClock(time)
    time.withheld = 7.0
    ended = iter([False, False, True])

    def done():
        time.withheld += 1.0
        return next(ended)

    assert clock.limited(done, [WaitingChild(time)], 2.0)
    assert [time.now, clock.charged] == pytest.approx([4.0, 1.0])


@pytest.mark.parametrize(
    ("seen", "looks"),
    [
        ([("S", "5")], 1),  # it sleeps: all of its waits are over
        ([("", "")], 1),  # it is gone
        ([("R", "5"), ("R", "6")], 2),  # it had a CPU: what it waited before is counted
        ([("R", "5"), ("R", "5"), ("R", "5"), ("Z", "5")], 4),
        ([("R", "5")] * 60, 51),  # it starves: half a second
    ],
)
def test_a_wait_under_way_is_waited_for_within_bounds(monkeypatch, seen, looks):
    slept: list[float] = []
    states = iter(seen)
    monkeypatch.setattr(zygote, "_state_and_runtime", lambda pid: next(states))
    monkeypatch.setattr("rewards.sandbox.worker.zygote.time.sleep", slept.append)
    zygote._until_it_runs(1)
    assert len(seen) - len(list(states)) == looks
    assert slept == [0.01] * (looks - 1)
