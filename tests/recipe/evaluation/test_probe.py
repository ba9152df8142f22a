import json
import re

import pytest

from data_prep.schema import read_rows
from data_prep.tasks import write_task_rows
from recipe.evaluation.samples import Answer, Sample
from recipe.probe import Signal, main, mean_signal, prompts_with_signal, signal, verdict
from tests.recipe.evaluation.conftest import task
from tests.recipe.evaluation.openai_server import Behaviour, serving

pytestmark = pytest.mark.slow  # with HTTP servers


def sample(score: float, tokens: int = 1, entropy: float | None = None) -> Sample:
    return Sample(
        "set", "a", "skill", 0, Answer("", tokens, "stop", entropy, 0, 1),
        {"score": score, "acc": score == 1, "pass_ratio": (1 + score) / 2},
    )  # fmt: skip


def test_the_signal_of_a_problem():
    found = signal([sample(1.0, 3, 0.2), sample(0.5, 1, 1.0), sample(0.0), sample(0.5)])
    assert (found.accuracy, found.variance, found.pass_ratio, found.mixed) == (0.25, 0.125, 0.75, 1.0)
    assert [signal([sample(score)] * 2).mixed for score in (0.0, 0.5, 1.0)] == [0.0, 0.0, 0.0]
    assert found.entropy == pytest.approx((3 * 0.2 + 1 * 1.0) / 4)


def test_answers_that_all_earn_the_same_carry_none():
    signals = {"same": signal([sample(0.5)] * 4), "differ": signal([sample(0.0), sample(1.0)])}
    assert prompts_with_signal(signals, 0.05) == {"differ"}


def test_a_data_set_is_the_mean_of_its_problems():
    found = mean_signal([Signal(0.0, 0.1, None, 0.5, 0.0), Signal(1.0, 0.3, 0.5, 1.0, 1.0)])
    assert found == Signal(0.5, 0.2, 0.5, 0.75, 0.5)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Signal(0.5, 0.2, 0.5, 1.0), []),
        (Signal(0.5, 0.2, None, 1.0), []),
        (Signal(0.02, 0.06, 0.5, 1.0), ["demonstrations first"]),
        (Signal(0.08, 0.06, 0.5, 1.0), ["add easier"]),
        (Signal(0.9, 0.06, 0.5, 1.0), ["add harder"]),
        (Signal(0.97, 0.03, 0.1, 1.0), ["a harder set", "teach nothing", "repeats itself"]),
        (Signal(0.5, 0.2, 0.9, 1.0), ["guesses"]),
    ],
)
def test_the_verdict_names_what_is_out_of_range_and_what_to_do(found, words):
    told = verdict(found)
    assert len(told) == len(words)
    assert all(word in line for word, line in zip(words, told, strict=True))


def test_the_command_keeps_the_prompts_that_carry_signal_and_may_be_trained_on(tmp_path, capsys):
    data, out = tmp_path / "own.parquet", tmp_path / "out"
    # "#### 0" is right for the problem whose number is 0 with any seed: no signal.
    write_task_rows(data, [task(0), task(1, role="train"), task(2)])
    with serving(Behaviour()) as url:
        assert main(["--data", f"own={data}", "--out", str(out), "--url", url, "--samples", "8"]) == 0
    prompts = {line["id"]: line for line in map(json.loads, (out / "prompts.jsonl").read_text().splitlines())}
    assert prompts["own/0"]["variance"] == 0
    assert prompts["own/1"]["variance"] > 0.05 < prompts["own/2"]["variance"]
    assert prompts["own/1"]["entropy"] == 0.5
    assert [row.extra_info.id for row in read_rows(out / "own.parquet")] == ["own/1"]
    assert "1 more carry signal but may not be trained on" in (printed := capsys.readouterr().out)
    assert json.loads((out / "probe.json").read_text())["own"]["mixed"] == pytest.approx(2 / 3)
    assert re.search(r"mixed groups.* 66\.7% ", printed, re.DOTALL)
