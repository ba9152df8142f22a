import asyncio

import pytest

from data_prep.micro.episodes import demonstrations
from data_prep.micro.problems import SKILLS

pytestmark = pytest.mark.slow

FEEDBACK = "fix {test}\n{program}"


def test_half_are_episodes_in_which_a_wrong_program_is_fixed():
    made = asyncio.run(demonstrations(40, 0, FEEDBACK))
    episodes = [one for one in made if len(one.messages) == 4]
    assert {one.skill for one in made} == {"write", "repair"} <= set(SKILLS)
    assert 20 < len(episodes) < 60
    for one in episodes:
        first, told, answer = (message.content for message in one.messages[1:])
        assert first != answer
        assert told.startswith("fix f(")
        assert told.endswith(f"\n{first}")  # the program itself


def test_the_same_arguments_give_the_same_demonstrations():
    assert asyncio.run(demonstrations(4, 3, FEEDBACK)) == asyncio.run(demonstrations(4, 3, FEEDBACK))
