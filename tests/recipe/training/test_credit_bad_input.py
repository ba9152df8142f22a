"""Groups that could break credit, from the reward worker's service to the advantages: nothing breaks, causes count."""

import asyncio
import math
from collections.abc import Sequence

import pytest
import torch

from data_prep.micro.model import make_tokenizer
from recipe.settings import CreditSettings
from recipe.training.credit_batch import shaped_by_credit
from recipe.training.step_samples import jagged
from rewards.analysis.parsing import parse
from rewards.counterfactual.groups import GroupBoard
from rewards.counterfactual.plan import Plan
from rewards.counterfactual.service import CreditService, RolloutSample

TOKENIZER = make_tokenizer()
RIGHT, WRONG, LONGER = "a = 1\nb = 2", "a = 1\nb = 3", "a = 1\nb = 2\nc = 3"
BROKEN = "a = 1\nb = = 2\nc = 3"
UNPARSABLE, THOUSANDS = "def f(:", "\n".join([WRONG, *["0"] * 1900])
TOO_MANY = "a = 1\n" * 2500
# An answer that contains this cannot be judged once it is changed.
UNJUDGED = "z = 0"


def ratio_of(text: str) -> float:
    if parse(text) is None:
        return 0.0
    return ("a = 1" in text.splitlines()) / 2 + ("b = 2" in text.splitlines()) / 2


async def judge(text: str) -> dict:
    if "d = 4" in text and UNJUDGED not in text:
        return {"score": math.nan, "pass_ratio": math.nan, "error": "infrastructure"}
    return {"score": ratio_of(text), "pass_ratio": ratio_of(text), "error": "none"}


def shaped(texts: Sequence[str], advantages: Sequence[float], **plan) -> tuple[list[torch.Tensor], dict[str, float]]:
    """Advantages of the tokens of one group's samples, and the metrics."""
    service = CreditService(Plan(**plan), GroupBoard(len(texts), patience=5.0))
    ids = [[*TOKENIZER.encode(text), TOKENIZER.eos_token_id] for text in texts]

    async def credited() -> list[dict]:
        samples = [
            RolloutSample("g", number, ["code", "truth"], text, own, {"score": ratio_of(text)})
            for number, (text, own) in enumerate(zip(texts, ids, strict=True))
        ]
        credits = await asyncio.gather(*(service.credit(sample, TOKENIZER, judge) for sample in samples))
        return [credit.as_info() for credit in credits]

    infos = [{"pass_ratio": ratio_of(text)} | found for text, found in zip(texts, asyncio.run(credited()), strict=True)]
    plain = jagged([torch.full((len(own),), value) for own, value in zip(ids, advantages, strict=True)])
    credit = CreditSettings(kind="counterfactual")
    return shaped_by_credit(plain, torch.ones_like(plain), ["g"] * len(texts), infos, credit, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan", [{}, {"methods": ("delete", "replace"), "choice": "informative"}], ids=["own", "group"]
)
@pytest.mark.parametrize(
    ("texts", "advantages", "metric", "expected"),
    [
        pytest.param([WRONG], [1.0], "credit/shared_share", 0.0, id="group of one"),
        pytest.param([RIGHT] * 3, [0.0] * 3, "credit/fallback_rate", 1.0, id="all siblings equal"),
        pytest.param([RIGHT, UNPARSABLE, WRONG], [1.0, -1.0, 0.0], "credit/uncredited/unparsable", 1 / 3,
                     id="unparsable sibling"),
        pytest.param([RIGHT, BROKEN, WRONG], [1.0, -1.0, 0.0], "credit/unparsable_share", 1 / 3,
                     id="unparsable sibling of several lines"),
        pytest.param([UNPARSABLE, BROKEN, RIGHT], [0.0] * 3, "credit/unparsable_share", 2 / 3, id="two unparsable"),
        pytest.param([UNPARSABLE] * 2, [0.0] * 2, "credit/fallback/no_steps", 0.0, id="all unparsable"),
        pytest.param([RIGHT, THOUSANDS], [1.0, -1.0], "credit/fallback_rate", 0.0, id="thousands of steps"),
        pytest.param([RIGHT, TOO_MANY], [1.0, -1.0], "credit/uncredited/no_steps", 0.5, id="too many steps"),
        pytest.param([RIGHT, WRONG], [0.0, 0.0], "credit/fallback/zero_advantage", 0.0, id="advantages 0"),
        pytest.param([RIGHT, WRONG], [1e6, -1e6], "credit/fallback_rate", 0.0, id="advantages 1e6"),
        pytest.param([RIGHT, f"d = 4\n{UNJUDGED}\nb = 2"], [1.0, -1.0], "credit/unjudged_share", 0.2,
                     id="a credit that is NaN"),
    ],
)  # fmt: skip
def test_bad_groups_break_nothing_and_their_causes_are_counted(plan, texts, advantages, metric, expected):
    rows, metrics = shaped(texts, advantages, **plan)
    largest = max(map(abs, advantages)) or 1.0
    for row, text in zip(rows, texts, strict=True):
        assert row.isfinite().all()
        assert len(row) == len(TOKENIZER.encode(text)) + 1
        assert row.abs().max() <= 2 * largest
    assert all(map(math.isfinite, metrics.values()))
    assert "credit/uncredited/failed" not in metrics
    assert metrics[metric] == pytest.approx(expected)
    unparsable = [row.tolist() for row, text in zip(rows, texts, strict=True) if text == UNPARSABLE]
    kept = [value for value, text in zip(advantages, texts, strict=True) if text == UNPARSABLE]
    assert unparsable == [[value] * len(row) for value, row in zip(kept, unparsable, strict=True)]


def test_beside_an_unparsable_sibling_the_step_that_differs_is_still_told():
    rows, _ = shaped([RIGHT, WRONG, UNPARSABLE], [1.0, -1.0, 0.0])
    same, differing = slice(0, 5), slice(6, 11)
    assert (rows[0][differing] > 0).all()
    assert (rows[1][differing] < 0).all()
    assert (rows[0][same] == 0.0).all()  # the mean advantage of those that have it


def test_what_all_write_is_not_pushed_down_beside_a_program_that_does_not_parse():
    """It keeps its advantage on all its tokens; those of its siblings' lines add up to the opposite."""
    broken = "a = 1\nb = = 2"
    rows, _ = shaped([RIGHT, WRONG, RIGHT, broken], [0.75, -0.25, 0.75, -1.25])
    same = slice(0, 5)
    assert [float(row[same].mean()) for row in rows[:3]] == pytest.approx([1.25 / 3] * 3)


def test_the_line_that_breaks_a_program_is_blamed_where_all_answers_of_the_group_fail():
    (other, row), metrics = shaped([WRONG, BROKEN], [0.0, 0.0])
    at = TOKENIZER.decode(TOKENIZER.encode(BROKEN)).index("b = = 2")
    assert (row[at : at + len("b = = 2")] < 0).all()
    assert (row[:at] >= 0).all()
    assert metrics["credit/fallback_rate"] == 0.0
    assert other.isfinite().all()


def test_a_step_of_one_sibling_is_compared_within_its_response():
    rows, metrics = shaped([LONGER, RIGHT], [1.0, -1.0])
    assert metrics["credit/shared_share"] == pytest.approx(4 / 5)
    first = TOKENIZER.decode(TOKENIZER.encode(LONGER)).index("c = 3")
    assert rows[0][first] < 1.0  # it earned nothing, the others half each
