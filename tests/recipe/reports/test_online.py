"""Online accuracy, paired t-tests, Holm's adjustment and updates to an accuracy, against numbers worked out by hand."""

import json
import math
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe import report
from recipe.records.intervals import Interval
from recipe.records.online import Goal, holm, mean_online, online_accuracy, paired_p, ratio_interval, updates_to
from recipe.records.run_directory import RunDirectory


def finish(folder: Path, name: str, accuracies: list[float | None]) -> RunDirectory:
    """A finished run with these accuracies of samples; None: not recorded."""
    run = RunDirectory.prepare(str(folder), "a", name)
    run.write_config(OmegaConf.create({"data": {"train_batch_size": 4}, "actor_rollout_ref": {"rollout": {"n": 2}}}))
    run.log_metrics(0, {"skill/mean/accuracy": 0.1})
    for step, accuracy in enumerate(accuracies, 1):
        spent = {"response_length/mean": 50.0, "credit/generated_tokens": 100.0, "timing_s/step": 10.0 * step}
        run.log_metrics(step, spent if accuracy is None else spent | {"reward/acc": accuracy})
    run.log_event("end")
    return run


def test_the_mean_leaves_out_the_first_update_whose_samples_no_arm_has_changed(tmp_path: Path):
    accuracy = online_accuracy(finish(tmp_path, "grpo.s0", [0.9, 0.2, 0.4, 0.6]))
    assert accuracy == [0.9, 0.2, 0.4, 0.6]
    assert mean_online(accuracy) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("accuracy", "window", "updates", "reached"),
    [
        ([0.1, 0.3, 0.6], 1, 1 + 2 / 3, True),  # 0.3 after one update, 0.6 after two
        ([0.1, 0.5, 0.2], 1, 1.0, True),  # the first time counts
        ([0.6, 0.1], 1, 0.0, True),
        ([0.1, 0.2, 0.3], 1, 3.0, False),  # counted with all its updates
        ([0.1, 0.7, 0.3, 0.9], 2, 2 + 0.0, True),  # means 0.1, 0.4, 0.5, 0.6
        ([0.2, 0.8, 0.2, 0.3], 3, 4.0, False),  # whole windows count: means 0.4, 0.43
        ([0.7, 0.8, 0.2, 0.3], 3, 2.0, True),  # the first window: after two updates at the latest
        ([0.1, 0.9, 0.5], 9, 2.0, True),  # a run of fewer updates than the window
        ([0.1, 0.7, 0.1], 2, 3.0, False),
        ([0.0, 0.5, 0.5, 0.5], 3, 3.0, True),
    ],
)
def test_updates_to_an_accuracy_count_runs_that_never_reach_it(
    accuracy: list[float], window: int, updates: float, reached: bool
):
    found, does = updates_to(accuracy, Goal(0.5, window))
    assert found == pytest.approx(updates)
    assert does == reached


def test_p_is_that_of_a_paired_t_test():
    # mean 2, standard deviation 1, t = 2 * sqrt(3) with 2 degrees of freedom: p = 1 - t / sqrt(t^2 + 2)
    assert paired_p([1.0, 2.0, 3.0]) == pytest.approx(1 - (12 / 14) ** 0.5)
    assert (paired_p([0.3]), paired_p([0.0, 0.0]), paired_p([0.1, 0.1])) == (None, 1.0, 0.0)
    rounding = mean_online([0.0, 0.1, 0.2, 0.3]) - mean_online([0.0, 0.3, 0.2, 0.1])
    assert 0 < abs(rounding) < 1e-15
    assert paired_p([rounding, rounding]) == 1.0


def test_holm_multiplies_the_smallest_by_their_number_and_keeps_the_order():
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])  # 0.04 * 1 may not fall below 0.03 * 2
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.02, None]) == [0.02, None]
    assert holm([]) == []


def test_a_ratio_is_the_geometric_mean_over_pairs():
    found = ratio_interval([5.0, 20.0], [10.0, 10.0])
    assert found is not None
    assert found.estimate == pytest.approx(1.0)  # a half and a double
    assert found.low is not None
    assert found.low * (found.high or 0) == pytest.approx(1.0)
    assert ratio_interval([4.0], [8.0]) == Interval(0.5)
    assert ratio_interval([0.0], [6.0]) is None


def study(folder: Path) -> str:
    finish(folder, "grpo.s0", [0.1, 0.2, 0.3, 0.4])
    finish(folder, "grpo.s1", [0.1, 0.3, 0.5, 0.7])
    finish(folder, "grpo.s2", [0.1, 0.1, 0.1, 0.1])
    finish(folder, "credit.s0", [0.1, 0.4, 0.5, 0.6])
    finish(folder, "credit.s1", [0.1, 0.6, 0.8, 1.0])
    finish(folder, "partial.s1", [0.1, 0.6, 0.6, 0.6])
    return str(folder / "a")


def test_contrasts_pair_the_runs_of_a_seed_and_are_adjusted_together(tmp_path: Path):
    runs = study(tmp_path)
    assert report.main(["online", runs, "--contrasts", "credit:grpo", "credit:partial"]) == 0
    numbers = json.loads((tmp_path / "a/summary/online.json").read_text())
    arms = {row["arm"]: row for row in numbers["arms"]}
    assert arms["grpo"]["accuracy"]["estimate"] == pytest.approx((0.3 + 0.5 + 0.1) / 3)
    # never, after two updates, never: of four
    assert (arms["grpo"]["updates"]["estimate"], arms["grpo"]["reached"]) == (pytest.approx(10 / 3), 1)
    first, second = numbers["contrasts"]
    assert (first["arm"], first["against"], first["pairs"]) == ("credit", "grpo", 2)
    # 20 and 30 points: a standard error of 5, t = 5 with one degree of freedom
    half = 0.05 * 12.7062
    assert first["gain"] == pytest.approx({"estimate": 0.25, "low": 0.25 - half, "high": 0.25 + half}, abs=1e-4)
    assert first["p"] == pytest.approx(1 - 2 / math.pi * math.atan(5))
    assert first["holm"] == pytest.approx(2 * first["p"])  # the other counts, with one pair or none
    # 2 of 4 updates, 0.8 of 2
    assert first["ratio"]["estimate"] == pytest.approx((0.5 * 0.4) ** 0.5)
    assert (second["pairs"], second["p"], second["holm"]) == (1, None, None)
    table = (tmp_path / "a/summary/online.md").read_text()
    assert "| grpo | 3 | 10.0 [10.0, 10.0] | 30.0 [-19.7, 79.7] | 3.3 [0.5, 6.2] | 1 of 3 |" in table
    assert "| credit - partial | 1 | +20.0 | - | - | 1.00 |" in table


def test_a_contrast_without_a_pair_is_named_and_counts(tmp_path: Path):
    runs = study(tmp_path)
    assert report.main(["online", runs, "--contrasts", "credit:grpo", "credit:ewc", "partial:shuffled"]) == 0
    (made,) = json.loads((tmp_path / "a/summary/online.json").read_text())["contrasts"]
    assert made["holm"] == pytest.approx(3 * made["p"])
    table = (tmp_path / "a/summary/online.md").read_text()
    assert "No pair of credit - ewc, partial - shuffled; Holm counts 3 contrasts." in table


def test_what_a_run_spent_until_it_reached_an_accuracy_counts_the_updates_before(tmp_path: Path):
    # 0.5 after one update and two thirds of the next: 500 tokens each, 10 and 20 s
    finish(tmp_path, "grpo.s0", [0.1, 0.3, 0.6])
    finish(tmp_path, "grpo.s1", [0.1, 0.3, 0.6])
    finish(tmp_path, "never.s0", [0.1, 0.1, 0.1])
    assert report.main(["online", str(tmp_path / "a"), "--reach", "0.5"]) == 0
    table = (tmp_path / "a/summary/online.md").read_text()
    assert "| arm | k tokens to 50% | sandbox seconds to 50% | wall seconds to 50% |" in table
    assert "| grpo | 0.8 [0.8, 0.8] | - | 23.3 [23.3, 23.3] |" in table
    assert "| never | 1.5 | - | 60.0 |" in table


def test_runs_that_died_differ_or_are_missing_stand_in_the_table(tmp_path: Path):
    for name, commit, processor, weights in (
        ("grpo.s0", "aaa", "AMD", "w1"), ("credit.s0", "bbb", "AMD", "w2"), ("credit.s1", "aaa", "Intel", "w1"),
    ):  # fmt: skip
        run = finish(tmp_path, name, [0.1, 0.3])
        run.log_event("start", commit=commit, processor=processor, weights=weights)
    died = finish(tmp_path, "grpo.s1", [0.1, 0.3])
    (died.path / "events.jsonl").unlink()
    died.log_event("failed", error="RuntimeError: no | memory")
    words = ["--expect", "grpo", "credit", "ewc", "--repeats", "s0", "s1", "s2", "--untuned", "credit"]
    assert report.main(["online", str(tmp_path / "a"), *words]) == 0
    table = (tmp_path / "a/summary/online.md").read_text()
    assert table.partition("| caution | what | runs |\n|---|---:|---:|\n")[2].splitlines() == [
        "| not finished, left out | update 2, RuntimeError: no memory | grpo.s1 |",
        "| not run | grpo | s2 |",
        "| not run | credit | s2 |",
        "| not run | ewc | any |",
        "| not tuned | credit | all |",
        "| different commit | bbb | credit.s0 |",
        "| different commit | aaa | credit.s1, grpo.s0 |",
        "| different processor | AMD | credit.s0, grpo.s0 |",
        "| different processor | Intel | credit.s1 |",
        "| different starting weights of s0 | w2 | credit.s0 |",
        "| different starting weights of s0 | w1 | grpo.s0 |",
    ]


def test_runs_outside_the_plan_and_starts_that_differ_between_repeats_are_told(tmp_path: Path):
    for repeat, weights in (("s0", "w1"), ("s1", "w2"), ("s7", "w1")):
        finish(tmp_path, f"grpo.{repeat}", [0.1, 0.3]).log_event("start", commit="a", processor="b", weights=weights)
    assert report.main(["online", str(tmp_path / "a"), "--expect", "grpo", "--repeats", "s0", "s1"]) == 0
    assert (tmp_path / "a/summary/online.md").read_text().splitlines()[-3:] == [
        "| not in the plan, counted | - | grpo.s7 |",
        "| different starting weights, one in each repeat | w1 | grpo.s0, grpo.s7 |",
        "| different starting weights, one in each repeat | w2 | grpo.s1 |",
    ]


def test_many_commits_are_one_line(tmp_path: Path):
    for number in range(7):
        finish(tmp_path, f"grpo.s{number}", [0.1, 0.3]).log_event("start", commit=f"c{number}", weights="w")
    assert report.main(["online", str(tmp_path / "a")]) == 0
    table = (tmp_path / "a/summary/online.md").read_text()
    assert table.endswith("| different commit | 7 of them | named by each run's start in events.jsonl |\n")


def test_without_contrasts_each_arm_is_compared_with_one(tmp_path: Path):
    assert report.main(["online", study(tmp_path), "--against", "partial"]) == 0
    numbers = json.loads((tmp_path / "a/summary/online.json").read_text())
    assert [(one["arm"], one["against"]) for one in numbers["contrasts"]] == [
        ("credit", "partial"),
        ("grpo", "partial"),
    ]


@pytest.mark.parametrize(
    ("accuracies", "words", "message"),
    [
        ([0.1, None], [], "has no reward/acc at update 2"),
        ([0.1], [], "has 1 updates; 2 are needed"),
        ([0.1, 0.2], [], "runs of 2 and 3 updates cannot be compared"),
        ([0.1, 0.2, 0.3], ["--contrasts", "credit"], "write ARM:AGAINST"),
    ],
)
def test_what_cannot_be_compared_ends_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], accuracies: list[float | None], words: list[str], message: str
):
    finish(tmp_path, "grpo.s0", [0.1, 0.2, 0.3])
    finish(tmp_path, "credit.s0", accuracies)
    assert report.main(["online", str(tmp_path / "a"), *words]) == 2
    assert message in capsys.readouterr().err


def test_the_mean_of_several_updates_has_to_reach_the_accuracy(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    finish(tmp_path, "grpo.s0", [0.1, 0.5, 0.7])
    runs = str(tmp_path / "a")
    assert report.main(["online", runs, "--window", "2"]) == 0
    table = (tmp_path / "a/summary/online.md").read_text()
    assert "| arm | runs | update 1 (%) | updates 2 to the last (%) | updates to 50%, mean of 2 | reached |" in table
    assert "| grpo | 1 | 10.0 | 60.0 | 1.7 | 1 of 1 |" in table  # 0.3 after one update, 0.6 after two
    assert report.main(["online", runs, "--window", "0"]) == 2
    assert "window >= 1 and samples >= 0, got 0.5, 0 and 0" in capsys.readouterr().err
    assert report.main(["online", runs, "--reach", "50"]) == 2
    assert "need an accuracy in (0, 1]" in capsys.readouterr().err


def test_several_skills_have_a_table_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name, word in (("grpo.s0", 0.1), ("grpo.s1", 0.3), ("credit.s0", 0.5)):
        run = finish(tmp_path, name, [0.5, 0.5])
        of_word = {f"train_skill/{skill}/accuracy": word for skill in ("word", "mean", "worst")}
        run.log_metrics(1, {"reward/acc": 0.5, "train_skill/write/accuracy": 0.9, **of_word})  # before any change
        run.log_metrics(2, {"reward/acc": 0.5, "train_skill/write/accuracy": 0.8, **of_word})
        run.log_metrics(3, {"reward/acc": 0.5, **of_word})  # no prompt of write
    assert report.main(["online", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr().out
    assert "| arm | word (%) | write (%) |" in printed
    assert "| grpo | 20.0 [-107.1, 147.1] | 80.0 [80.0, 80.0] |" in printed
    assert "| credit | 50.0 | 80.0 |" in printed


def test_one_skill_has_no_own_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = finish(tmp_path, "grpo.s0", [0.5, 0.5])
    run.log_metrics(2, {"reward/acc": 0.5, "train_skill/write/accuracy": 0.8, "train_skill/mean/accuracy": 0.8})
    assert report.main(["online", str(tmp_path / "a")]) == 0
    assert "write (%)" not in capsys.readouterr().out


def test_updates_of_different_sizes_are_compared_in_blocks_of_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    finish(tmp_path, "small.s0", [0.0, 0.25, 0.25, 0.5, 0.75, 0.75])  # updates of 8 samples: 0.125, 0.375, 0.75
    large = finish(tmp_path, "large.s0", [0.125, 0.375, 0.5])
    large.write_config(OmegaConf.create({"data": {"train_batch_size": 4}, "actor_rollout_ref": {"rollout": {"n": 4}}}))
    words = ["online", str(tmp_path / "a"), "--contrasts", "small:large", "--reach", "0.5"]
    assert report.main(words) == 2
    assert "runs of 3 and 6 updates cannot be compared" in capsys.readouterr().err
    assert report.main([*words, "--samples", "16"]) == 0
    printed = capsys.readouterr().out
    head = "| arm | runs | block of 16 samples 1 (%) | blocks 2 to the last (%) | blocks to 50% | reached |"
    assert head in printed
    assert "| small | 1 | 12.5 | 56.2 | 1.3 | 1 of 1 |" in printed
    assert "| large | 1 | 12.5 | 43.8 | 2.0 | 1 of 1 |" in printed
    # k tokens, 400 and 800 of answers and 100 for credit an update: 1 + 1/3 blocks of two updates, and two updates.
    assert "| small | 1.3 |" in printed
    assert "| large | 1.8 |" in printed
    assert report.main([*words, "--samples", "12"]) == 2
    assert "are no whole blocks of 12 samples" in capsys.readouterr().err


def test_runs_of_different_lengths_are_compared_over_what_all_have_and_reach_within_all_of_theirs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    finish(tmp_path, "long.s0", [0.0, 0.2, 0.4, 0.6])
    finish(tmp_path, "short.s0", [0.0, 0.5])
    assert report.main(["online", str(tmp_path / "a"), "--lengths-differ", "--contrasts", "short:long"]) == 0
    printed = capsys.readouterr().out
    assert "| arm | runs | update 1 (%) | updates 2 to 2 (%) | updates to 50% | reached |" in printed
    assert "| long | 1 | 0.0 | 20.0 | 2.5 | 1 of 1 |" in printed
    assert "| short | 1 | 0.0 | 50.0 | 1.0 | 1 of 1 |" in printed
    assert "| short - long | 1 | +30.0 | - | - | 0.40 |" in printed


def test_each_run_has_a_row_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    finish(tmp_path, "grpo.s0", [0.0, 0.2, 0.4, 0.6])
    finish(tmp_path, "grpo.s1", [0.0, 0.1, 0.3, 0.1])
    assert report.main(["online", str(tmp_path / "a"), "--each"]) == 0
    printed = capsys.readouterr().out
    assert "| run | updates 2 to the last (%) | updates to 50% | last 1 below half of its best 1 |" in printed
    assert "| grpo.s0 | 40.0 | 2.5 | no |\n| grpo.s1 | 16.7 | not in 4 | yes |" in printed
    assert report.main(["online", str(tmp_path / "a")]) == 0
    assert "grpo.s0 | 40.0" not in capsys.readouterr().out
