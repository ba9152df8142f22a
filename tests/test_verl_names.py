"""Every name of verl that we import or override exists in the installed release, unchanged; and the check can fail."""

import json
import sys
import textwrap
from pathlib import Path

import pytest

from scripts.check_verl_names import PACKAGES, PROJECT, SNAPSHOT, by_class, kept, problems, snapshot_of
from scripts.library_uses import Reader, Use

pytestmark = pytest.mark.slow  # imports all of verl

LIBRARY = """
    RATE = 1

    class Base:
        width = 3

        def __init__(self, size):
            self.size = size

        def step(self, batch, metrics=None):
            return batch

        def finish(self):
            return self.size

    class Other:
        def __init__(self):
            self.length = 1

        def rest(self):
            return self.length
"""


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A library ``fakelib`` and a function that checks a package ``ours`` of the given source against it."""
    (tmp_path / "fakelib").mkdir()
    (tmp_path / "fakelib" / "__init__.py").write_text("")
    (tmp_path / "fakelib" / "core.py").write_text(textwrap.dedent(LIBRARY))
    (tmp_path / "ours").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    def check(source: str, snapshot: dict[str, str] | None = None) -> list[str]:
        (tmp_path / "ours" / "code.py").write_text(textwrap.dedent(source))
        uses = Reader("fakelib").read(tmp_path, ("ours",))
        return problems(uses, snapshot_of(uses) if snapshot is None else snapshot)

    yield check
    for name in [name for name in sys.modules if name.split(".")[0] == "fakelib"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def uses() -> list[Use]:
    return Reader("verl").read(PROJECT, PACKAGES)


def test_every_name_and_signature_is_as_the_installed_verl_has_it(uses: list[Use]) -> None:
    assert by_class(kept()) == json.loads(SNAPSHOT.read_text())
    found = problems(uses, kept())
    assert not found, "\n".join(found)


def test_the_reader_sees_what_is_known_to_be_there(uses: list[Use]) -> None:
    seen = {(use.kind, use.name) for use in uses}
    trainer, worker = "verl.trainer.ppo.v1.trainer_base.PPOTrainer", "verl.workers.engine_workers"
    assert ("import", "verl.trainer.ppo.utils.Role.ActorRolloutRef") in seen  # an attribute of an imported name
    assert ("import", "verl.trainer.main_ppo.run_ppo") in seen  # an import inside a function
    assert ("override", f"{trainer}._validate") in seen
    assert ("super", f"{trainer}._validate") in seen
    assert ("self", f"{trainer}.global_steps") in seen  # set by verl, read by us
    assert ("override", f"{worker}.TrainingWorker.train_mini_batch") in seen  # through a base class of our own
    assert ("override", f"{worker}.ActorRolloutRefWorker.actor_worker_cls") in seen  # a class attribute
    assert any(name.endswith("modified_class.run") for _, name in seen)  # a base behind an assignment


def test_what_one_of_two_bases_has_is_there(house) -> None:
    source = """
        from fakelib.core import Base, Other

        class Hooks(Base):
            pass

        class Ours(Hooks, Other):
            def use(self):
                super().rest()
                return self.length, self.size
    """
    assert house(source) == []
    missing, *_ = house(source.replace("self.length", "self.lenght"))
    assert "lenght is read from self, but neither verl's class nor ours provides it" in missing
    missing, *_ = house(source.replace("super().rest", "super().wait"))
    assert "wait is called through super(), but does not exist" in missing


def test_correct_code_passes(house) -> None:
    source = """
        from fakelib.core import RATE, Base

        class Ours(Base):
            width = 4

            def __init__(self, size, extra=None):
                super().__init__(size)
                self.extra = extra

            def step(self, batch, **kwargs):
                return super().step(batch), self.size, self.extra, self.width

            def new(self):
                return self.new
    """
    assert house(source) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from fakelib.core import Bass", "ours/code.py:1: fakelib.core.Bass does not exist"),
        ("import fakelib.gone", "ours/code.py:1: fakelib.gone does not exist"),
        ("import fakelib.core\nprint(fakelib.core.RATES)", "ours/code.py:2: fakelib.core.RATES does not exist"),
        ("from fakelib import core as c\nc.Base.stop", "ours/code.py:2: fakelib.core.Base.stop does not exist"),
    ],
)
def test_a_wrong_name_is_found_with_file_and_line(house, source: str, expected: str) -> None:
    (found,) = house(source)
    assert found.startswith(expected)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (
            "def step(self, data, metrics=None): ...",
            "its parameters are (self, batch, metrics), ours (self, data, metrics)",
        ),
        ("def step(self, batch): ...", "ours does not take metrics"),
        ("def step(self, batch, metrics, seed): ...", "ours asks for seed, which nobody passes"),
        ("def finish(self): super().end()", "is called through super(), but does not exist"),
        ("def finish(self): return self.length", "is read from self, but neither verl's class nor ours provides it"),
    ],
)
def test_a_wrong_override_is_found(house, method: str, expected: str) -> None:
    (found,) = house(f"from fakelib.core import Base\n\nclass Ours(Base):\n    {method}\n")
    assert found.startswith("ours/code.py:4: fakelib.core.Base.")
    assert found.endswith(expected)


OVERRIDE = "from fakelib.core import Base\n\nclass Ours(Base):\n    def step(self, batch, metrics=None): ...\n"


def test_a_signature_that_the_library_changed_is_found(house) -> None:
    (found,) = house(OVERRIDE, {"fakelib.core.Base.step": "(self, batch)"})
    assert found == "ours/code.py:4: fakelib.core.Base.step was (self, batch) and is (self, batch, metrics=None)"


def test_a_method_that_the_library_dropped_is_found(house) -> None:
    source = "from fakelib.core import Base\n\nclass Ours(Base):\n    def on_end(self): ...\n"
    (found,) = house(source, {"fakelib.core.Base.on_end": "(self)"})
    assert found == "ours/code.py:4: fakelib.core.Base.on_end was overridden here, but no longer exists"


def test_an_override_that_is_not_in_the_snapshot_and_one_that_is_gone_are_found(house) -> None:
    found = house(OVERRIDE, {"fakelib.core.Base.finish": "(self)"})
    assert len(found) == 2
    assert "fakelib.core.Base.step is new here" in found[0]
    assert "fakelib.core.Base.finish is no longer overridden" in found[1]
