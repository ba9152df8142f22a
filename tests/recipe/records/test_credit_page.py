import json
import math
from pathlib import Path

from recipe.records.credit_page import pieces, write_credit_page
from recipe.records.run_directory import RunDirectory

RESPONSE = "def f(a):\n a+=<1>\n return a"
SPANS = [[0, 9], [11, 17], [19, 27]]


def test_pieces_put_together_are_the_response_and_carry_the_credits():
    found = pieces(RESPONSE, SPANS, [1.0, -0.5, None])
    assert "".join(piece.text for piece in found) == RESPONSE
    marked = [piece for piece in found if piece.colour != "transparent"]
    assert [piece.credit for piece in marked] == [1.0, -0.5, None]
    assert [piece.colour.split()[0] for piece in marked] == ["hsl(130", "hsl(0", "#eeeeee"]


def test_credits_that_are_all_zero_or_unknown_have_no_colour_of_their_own():
    for credits in ([0.0, 0.0, 0.0], [math.nan, math.nan, math.nan]):
        assert {piece.colour for piece in pieces(RESPONSE, SPANS, credits)} == {"#eeeeee", "transparent"}


def test_the_page_shows_what_was_kept_and_escapes_what_a_model_wrote(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    row = {
        "prompt": "write <b>", "response": RESPONSE, "score": 0.0, "pass_ratio": 0.5, "credit_cause": "",
        "credit_spans": SPANS, "credit_values": [1.0, -0.5, math.nan],
    }  # fmt: skip
    run.log_generations(7, "train", [row, {"prompt": "p", "response": "r", "score": 1.0}])
    write_credit_page(run, 7)
    page = (run.path / "plots" / "credit_000007.html").read_text()
    assert "a+=&lt;1&gt;" in page
    assert 'title="-0.500"' in page
    assert 'title="no credit"' in page
    assert page.count("<article>") == 1
    json.loads((run.path / "generations" / "train_000007.jsonl").read_text().splitlines()[0])


def test_a_step_without_credits_makes_no_page(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    write_credit_page(run, 3)
    assert not list((run.path / "plots").iterdir())
