"""A problem of every skill, at every difficulty, for the laws that hold over the whole registry."""

import random

import pytest

from data_prep.micro.problems import ALL_SKILLS, MicroProblem


def sample_problems(count: int) -> list[MicroProblem]:
    return [
        make(random.Random(f"{skill}/{difficulty}/{number}"), difficulty)
        for skill, make in ALL_SKILLS.items()
        for difficulty in (1, 2, 3)
        for number in range(count)
    ]


@pytest.fixture(params=sample_problems(2), ids=lambda problem: f"{problem.skill}-{problem.prompt[:16]!r}")
def problem(request) -> MicroProblem:
    return request.param
