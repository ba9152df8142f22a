"""What verifiers read of a response, and which responses share a score in the cache of replays."""

from typing import Any

import pytest

from rewards import compute_score, registry, verifier_inputs
from tests.rewards.examples import EXAMPLES


@pytest.mark.parametrize("name", ["code", "gsm8k", "trace", "sql"])
async def test_texts_of_which_a_verifier_reads_the_same_share_a_score_and_others_do_not(name):
    """Every answer is surrounded by text that another verifier would read."""
    example = EXAMPLES[name]
    answers = [example.gold, *example.wrong]
    texts = [around.format(answer) for answer in answers for around in ("{}", "#### 41\n{}", "{}\n#### 41")]
    by_reading: dict[tuple[Any, ...], set[float | str]] = {}
    for text in texts:
        verdict = await compute_score(name, text, example.row, timeout=2.0)
        by_reading.setdefault(tuple(verifier_inputs(name, text)), set()).add(verdict["pass_ratio"])
    assert {len(ratios) for ratios in by_reading.values()} == {1}
    around_gold = {tuple(verifier_inputs(name, text)) for text in texts[:3]}
    assert len(around_gold) == (1 if name == "code" else 3)  # whose gold answer stands in a fence


def test_every_verifier_of_programs_shares_scores_of_equal_programs():
    reading = {name for name in registry.names() if registry.get(name).reads is not registry.whole}
    assert reading == {"code", "refactor", "stdio", "calls", "sql"}
