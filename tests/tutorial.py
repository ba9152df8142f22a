"""The blocks of docs/tutorial.md as commands that a test can run: with this interpreter, and short."""

import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)[ ]?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUICKSTART = ["bash", "scripts/quickstart.sh"]


def sections() -> list[str]:
    """The text of each numbered section, in order."""
    return re.split(r"^## \d+\. .*$", (ROOT / "docs" / "tutorial.md").read_text(), flags=re.MULTILINE)[1:]


def files(section: str) -> dict[str, str]:
    """The files that a section shows whole, by name."""
    return {name: text for _, name, text in BLOCK.findall(section) if name}


def commands(section: str) -> list[list[str]]:
    """The words of each command of a section's blocks.

    Nothing is activated: the commands have this interpreter.
    """
    found = []
    for language, name, text in BLOCK.findall(section):
        if language == "bash" and not name:
            found += [shlex.split(line) for line in text.replace("\\\n", " ").splitlines()]
    kept = [words for words in found if words[0] != "source"]
    return [[sys.executable, *words[1:], *shorter(words)] if words[0] == "python" else [*words, *shorter(words)]
            for words in kept]  # fmt: skip


def cluster_words(section: str) -> list[str]:
    """The overrides that the paragraph on clusters adds to its section's training."""
    (paragraph,) = re.findall(r"^On a cluster: .*?\. First ", section, re.MULTILINE | re.DOTALL)
    return [word for words in re.findall(r"`([^`]+=[^`]+)`", paragraph) for word in words.split()]


def training_of_quickstart() -> list[str]:
    """The overrides of the training in the quickstart's script."""
    (line,) = re.findall(r"^\.venv/bin/python -m recipe\.train (.*) \"\$@\"$",
                         ROOT.joinpath(*QUICKSTART[1:]).read_text(), re.MULTILINE)  # fmt: skip
    return shlex.split(line)


def shorter(words: list[str]) -> list[str]:
    """Overrides that make a training short: one step of each stage, or two steps; nothing for other commands."""
    if words != QUICKSTART and "recipe.train" not in words:
        return []
    if "--multirun" in words:  # its report compares all skills before and after
        return ["protocol.stage_steps=1", "trainer.test_freq=1", "actor_rollout_ref.rollout.val_kwargs.n=1",
                "data.val_max_samples=64"]  # fmt: skip
    steps = "protocol.stage_steps=1" if "protocol=sequential" in words else "trainer.total_training_steps=2"
    return [steps, "trainer.val_before_train=false", "trainer.test_freq=1", "data.val_max_samples=16"]
