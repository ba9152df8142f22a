"""The checks look at this machine; what other programs use of its memory is not their tests' matter."""

import pytest

from recipe.checks import machine

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _memory_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_memory", lambda: 100 * GIB)
