"""Bars from run directories: 2 arms, 2 orders, 2 seeds, as the study writes them."""

from pathlib import Path

import pytest

from recipe import report
from tests.composing import composed
from tests.recipe.reports.test_skills import finish

pytestmark = pytest.mark.slow  # with whole run directories


def test_orders_of_a_seed_are_one_block_and_a_seed_without_both_is_left_out(tmp_path: Path, capsys):
    config = composed(
        "experiment=paper_b", "protocol.stage_steps=2", "protocol.skill_sequence=[write,sql]", "projection=qp"
    )
    # `sql` ends at 0.9, so the averages are (kept + 0.9) / 2; `write` was at 0.8 before.
    for arm, kept in (("grpo", (0.2, 0.4, 0.4, 0.2)), ("closed_loop", (0.8, 0.8, 0.8, 0.6))):
        places = [(seed, order) for seed in ("s0", "s1") for order in ("forward", "backward")]
        for (seed, order), left in zip(places, kept, strict=True):
            finish(tmp_path, config, f"{arm}.{order}.{seed}", left)
    finish(tmp_path, config, "grpo.forward.s2", 0.4)
    assert report.main(["bars", str(tmp_path / "b")]) == 0
    text = (tmp_path / "b" / "summary" / "bars.md").read_text()
    assert text.strip() in capsys.readouterr().out
    # Blocks: 0.85 - 0.6 = 25 points and 0.8 - 0.6 = 20.
    assert "| closed_loop - grpo | 2 | +22.5 [-9.3, +54.3] | +20.0 [+20.0, +20.0] | +25.0 [-38.5, +88.5] |" in text
    assert "Seeds with every order, where not all have: grpo (2 of 3)." in text
    lacking = "ewc, replay, rehearsal, random_gradients, qp_solutions"
    assert f"Incomplete: no block with {lacking}; Holm counts 6 contrasts." in text
    assert "| forward | 0.0 [0.0, 0.0] |" in text
    assert "- forgetting at most 3 points, upper end at most 5: MISSED; 5.0 [-58.5, 68.5] over 2 blocks" in text
    assert "- loss since a skill's stage ended at most 3 points, upper end at most 5: MISSED; 5.0" in text
    assert "- final average ahead of rehearsal (Holm, 5%): not judged; no block of both arms" in text
    assert "- no level below its line: not judged; 0 of 4 runs verified steps" in text
    assert report.main(["bars", str(tmp_path / "b"), "--arm", "other"]) == 2
    assert report.main(["bars", str(tmp_path / "b"), "--blocks", "order"]) == 0
    # Four blocks: 30, 20, 20 and 20 points.
    assert "| closed_loop - grpo | 4 | +22.5 [+14.5, +30.5] |" in capsys.readouterr().out
    words = ["--controls", "grpo", "ewc", "--family", "grpo", "ewc", "closed_loop", "--expect", "ewc", "--repeats", "x"]
    assert report.main(["bars", str(tmp_path / "b"), *words]) == 0
    text = (tmp_path / "b" / "summary" / "bars.md").read_text()
    assert "Incomplete: no block with ewc; Holm counts 2 contrasts." in text
    assert "- final average ahead of grpo (Holm, 5%): MISSED; +22.5" in text
    assert "- final average ahead of ewc (Holm, 5%): not judged; no block of both arms" in text
    assert "rehearsal" not in text
    assert "| not run | ewc | any |" in text
