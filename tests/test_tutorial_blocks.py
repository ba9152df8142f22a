"""Every block of the tutorial is a command that its end-to-end test can run, and every training of it composes."""

import pytest

from recipe.settings import read_settings
from tests.composing import composed
from tests.tutorial import BLOCK, cluster_words, commands, files, sections, shorter, training_of_quickstart

pytestmark = pytest.mark.slow

NAMES = ["scripts/quickstart.sh", "ls", "recipe.train", "recipe.train", "recipe.report"]
OWN = ["mine.py", "data_prep.validate", "data_prep.govern", "recipe.train"]


def name_of(words: list[str]) -> str:
    return words[0] if words[0] == "ls" else words[2] if words[1] == "-m" else words[1]


def trainings() -> list[list[str]]:
    """The overrides of each training after the quickstart's, one for each value of a multirun."""
    found = [words[3:] for section in sections() for words in commands(section) if name_of(words) == "recipe.train"]
    assert [words[0] for words in found].count("--multirun") == 1
    (several,) = (words for words in found if words[0] == "--multirun")
    arms = [
        [f"arm={arm}" if word.startswith("arm=") else word for word in several[1:]] for arm in ("grpo", "qp_solutions")
    ]
    assert "arm=grpo,qp_solutions" in several
    return [words for words in found if words is not several] + arms


def test_every_block_becomes_commands_or_a_file():
    found = sections()
    assert [name_of(words) for section in found[:4] for words in commands(section)] == NAMES
    assert [name_of(words) for words in commands(found[4])] == OWN
    assert list(files(found[4])) == ["mine.py"]
    assert {language for section in found for language, _, _ in BLOCK.findall(section)} == {"bash", "python"}


@pytest.mark.parametrize("overrides", trainings(), ids=lambda words: words[0] + "." + words[1])
def test_a_training_of_the_tutorial_composes_and_is_short(overrides: list[str]):
    config = composed(*overrides)
    assert config.trainer.test_freq == 1
    assert (
        config.protocol.stage_steps if config.protocol.kind == "sequential" else config.trainer.total_training_steps
    ) <= 2


def test_the_same_training_composes_for_a_cluster():
    section = sections()[4]
    (training,) = (words[3:] for words in commands(section) if name_of(words) == "recipe.train")
    config = composed(*training, *cluster_words(section))
    read_settings(config)
    assert config.actor_rollout_ref.model.path == "Qwen/Qwen2.5-Coder-7B-Instruct"
    assert config.actor_rollout_ref.rollout.tensor_model_parallel_size == 2
    assert (config.actor_rollout_ref.model.lora_rank > 0, config.protocol.skill_sequence) == (True, ["write", "mine"])


def test_other_commands_stay_as_they_are():
    assert shorter(["python", "-m", "recipe.report", "skills", "outputs/tutorial"]) == []


def test_the_run_without_credit_is_the_first_run_but_for_credit():
    (first,), (without,) = (commands(sections()[place]) for place in (0, 2))
    with_credit, without_credit = composed(*training_of_quickstart(), *first[2:]), composed(*without[3:])
    assert (with_credit.credit.kind, without_credit.credit.kind) == ("counterfactual", "off")
    for config in (with_credit, without_credit):
        del config.credit
        config.run.name = None
    assert with_credit == without_credit
