import json
import math
import string
from collections import Counter
from typing import Any

import pytest

from recipe.pages import page_samples as module
from recipe.pages.page_samples import SAMPLES, read_samples, shares
from recipe.pages.page_templates import island, shortened
from recipe.records.run_directory import RunDirectory
from recipe.runtime.visible import visible
from rewards.counterfactual.replayer import MOST
from tests.recipe.pages.conftest import HOSTILE, make_run, replay, sample, with_credit


def test_hidden_characters_become_visible_and_all_others_stay():
    assert visible("\x1b[31m\u202eab\u202c\x07\x7f") == "␛[31m⟨U+202E⟩ab⟨U+202C⟩␇⟨U+007F⟩"
    assert visible("\ud800") == "⟨U+D800⟩"
    kept = string.printable.replace("\r", "").replace("\x0b", "").replace("\x0c", "") + "åß漢字🙂"
    assert visible(kept) == kept
    assert visible("a\r\nb") == "a\nb"
    assert visible(HOSTILE).encode()


def test_an_island_is_json_that_ends_no_element_and_has_no_number_that_is_none():
    text = island({"a": [HOSTILE, math.nan, math.inf, 1.5, (True, None)]})
    assert json.loads(text) == {"a": [HOSTILE, None, None, 1.5, [True, None]]}
    assert not set("<>&\u2028") & set(text)
    assert text.isascii()


def test_a_long_text_says_how_much_is_missing():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcdef", 3) == "abc\n[3 more characters]"


@pytest.mark.parametrize(
    ("counts", "limit", "taken"),
    [([5, 5], 20, [5, 5]), ([1, 50, 50], 21, [1, 10, 10]), ([4, 4, 4], 2, [1, 1, 0]), ([], 5, []), ([3], 0, [0])],
)
def test_steps_share_the_limit(counts: list[int], limit: int, taken: list[int]):
    found = shares(counts, limit)
    assert sorted(found, reverse=True) == sorted(taken, reverse=True)
    assert all(one <= count for one, count in zip(found, counts, strict=True))
    assert sum(found) == min(limit, sum(counts))


def test_a_sample_keeps_verdict_skill_and_the_text_of_its_steps(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    run.log_generations(7, "train", [with_credit(0), sample(1, guard="special_casing"), sample(3, masked=1.0)])
    found = read_samples([run])
    first, second, third = found.rows
    assert [row["verdict"] for row in found.rows] == ["right", "wrong", "masked"]
    assert (first["step"], first["skill"], second["guard"], third["skill"]) == (7, "write", "special_casing", "sql")
    assert [part[0] for part in first["pieces"]] == ["line one 0\n", "line two\n", "rest"]
    assert [part[1] for part in first["pieces"][:2]] == [0.5, -0.25]
    assert [part[2] for part in first["pieces"][:2]] == [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0]]
    assert first["counts"] == {"replays": 2}
    assert first["whole"] == [1.0, 1.0, 0.0, 0.0]
    assert "whole" not in second
    assert first["prompt"] == second["prompt"] != third["prompt"]
    assert found.texts[first["prompt"]] == "task 0"
    assert found.left_out == 0


@pytest.mark.parametrize(
    "broken",
    [
        {"credit_spans": [[0, 5]], "credit_values": [1.0, 2.0]},
        {"credit_spans": [[5, 2]], "credit_values": [1.0]},
        {"credit_spans": [[0, 999]], "credit_values": [1.0]},
        {"credit_spans": "x", "credit_values": [1.0]},
        {"credit_spans": [[0, "5"]], "credit_values": [1.0]},
        {"credit_spans": [[0, 5]], "credit_values": [1.0], "credit_tests": [[1.0], [1.0]]},
        {"credit_spans": [[0, 5]], "credit_values": [1.0], "credit_tests": [1.0]},
        {"credit_spans": None, "credit_values": None},
    ],
)
def test_credit_that_does_not_fit_the_answer_is_left_out_and_the_answer_stays(tmp_path, broken):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    run.log_generations(1, "train", [sample(0, response="abcdefgh", **broken)])
    assert [row["pieces"] for row in read_samples([run]).rows] == [[["abcdefgh"]]]


def test_a_step_without_a_number_as_credit_has_none(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    run.log_generations(1, "train", [with_credit(0, credit_values=[math.nan, 0.5])])
    assert [piece[1] for piece in read_samples([run]).rows[0]["pieces"][:2]] == [None, 0.5]


def test_replays_are_those_of_their_steps_and_others_are_skipped(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    first, good = replay(0, "old", "new", 0.5, tests="10"), replay(1, "", "", 0.5)
    steps: list[Any] = [3, [], 0.5, True]
    broken: list[Any] = [None, [], {}, good | {"change": "x"}, *(good | {"step": step} for step in steps)]
    late = replay(-1, "old", "", math.nan, change="several", cause="time limit")
    run.log_generations(1, "train", [with_credit(0, credit_replayed=[first, *broken, late]), sample(1)])
    found = read_samples([run])
    texts = [one | {key: found.texts[one[key]] for key in ("without", "instead")} for one in found.rows[0]["replays"]]
    assert texts == [
        {"change": "step", "at": 0, "without": "old", "instead": "new", "score": 0.5, "tests": "10", "cause": ""},
        {"change": "several", "at": -1, "without": "old", "instead": "", "score": None, "tests": "",
         "cause": "time limit"},
    ]  # fmt: skip
    assert "replays" not in found.rows[1]


def test_a_record_with_too_many_replays_or_of_an_older_version_is_read(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    many = [replay(0, "x", "y", 0.5)] * 10_000
    older = {key: value for key, value in with_credit(0).items() if key != "credit_replayed"}
    run.log_generations(1, "train", [with_credit(0, credit_replayed=many), older])
    first, second = read_samples([run]).rows
    assert len(first["replays"]) == MOST
    assert "replays" not in second


def test_a_step_without_text_is_no_place_on_the_page(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    spans, values = [[0, 5], [5, 5], [5, 9]], [0.1, 0.2, 0.3]
    replays = [replay(index, str(index), "", 0.0) for index in range(3)]
    row = sample(0, credit_spans=spans, credit_values=values, credit_replayed=replays)
    run.log_generations(1, "train", [row])
    found = read_samples([run]).rows[0]
    assert [piece[1] for piece in found["pieces"] if len(piece) > 1] == [0.1, 0.3]
    assert [one["at"] for one in found["replays"]] == [0, 1]


def test_cut_lines_and_other_things_than_samples_are_skipped(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    lines = [json.dumps(sample(0)), "null", "[1]", '{"response": 3}', "", "[" * 100_000, json.dumps(sample(1))[:40]]
    lines.insert(1, json.dumps(sample(0) | {"score": 10**400}))
    (run.path / "generations" / "train_000001.jsonl").write_text("\n".join(lines))
    (run.path / "generations" / "train_x.jsonl").write_text(lines[0])
    rows = read_samples([run]).rows
    assert [row["verdict"] for row in rows] == ["right", "right"]
    assert rows[1]["score"] is None


@pytest.mark.slow
def test_of_a_million_samples_a_page_holds_as_many_as_of_any_run(tmp_path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    lines = (json.dumps(sample(0)) + "\n") * 10_000
    for step in range(1, 101):
        (run.path / "generations" / f"train_{step:06d}.jsonl").write_text(lines)
    found = read_samples([run])
    assert (len(found.rows), found.left_out, len(found.texts)) == (SAMPLES, 1_000_000 - SAMPLES, 2)
    assert Counter(row["step"] for row in found.rows) == dict.fromkeys(range(1, 101), SAMPLES // 100)


@pytest.mark.slow
def test_samples_beyond_the_limit_are_counted_and_every_step_keeps_some(tmp_path, monkeypatch):
    runs = [make_run(tmp_path, name, hostile=False) for name in ("a", "b")]
    found = read_samples(runs, 6)
    assert [(row["run"], row["step"]) for row in found.rows] == [(run, step) for run in (0, 1) for step in (1, 2, 3)]
    assert found.left_out == 2 * 3 * 4 - 6
    size = sum(path.stat().st_size for run in runs for path in run.path.glob("generations/*"))
    monkeypatch.setattr(module, "SIZE", 0.55 * size)
    crowded = read_samples(runs)
    assert (len(crowded.rows), crowded.left_out) == (13, 11)
    assert {(row["run"], row["step"]) for row in crowded.rows} == {(run, step) for run in (0, 1) for step in (1, 2, 3)}
