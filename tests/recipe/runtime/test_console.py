import io
import json
import time

import pytest

from recipe.runtime.console import EvaluationState, ProgressReporter, StepClock, SupervisedState, TrainingState


def test_the_state_follows_the_events_of_a_run():
    state = TrainingState()
    assert state.describe() == "starting Ray"
    state.take({"time": 0.0, "event": "ready", "step": 0, "total_steps": 30, "resumed": False})
    state.take({"time": 1.0, "event": "generate", "step": 1})
    assert state.describe() == "0 of 30 steps done | generating and verifying"
    state.take({"time": 6.0, "event": "step", "step": 1, "reward": 0.5, "accuracy": 0.4})
    state.take({"time": 6.1, "event": "generate", "step": 2})
    assert state.describe() == (
        "1 of 30 steps done | generating and verifying | reward 0.50 | validation accuracy 40% | about 2.9 min left"
    )
    for step, accuracy in ((2, None), (3, 0.0)):
        state.take({"time": 6.0, "event": "step", "step": step, "reward": 0.5, "accuracy": accuracy})
        assert f"validation accuracy {'0%' if accuracy == 0 else '40%'}" in state.describe()


def test_a_resumed_run_counts_from_its_checkpoint():
    state = TrainingState()
    state.take({"time": 0.0, "event": "ready", "step": 10, "total_steps": 12, "resumed": True})
    state.take({"time": 5.0, "event": "step", "step": 11, "reward": None, "accuracy": None})
    assert state.describe() == "11 of 12 steps done | ready | about 5 s left"


def test_a_failed_report_is_shown_until_the_next_validation():
    state = TrainingState()
    state.take({"time": 0.0, "event": "report_failed", "step": 3, "error": "OSError: no font"})
    assert state.describe() == "starting Ray | no report of step 3: OSError: no font"
    state.take({"time": 1.0, "event": "validate", "step": 6})
    assert state.describe() == "validating"


def test_the_clock_uses_the_last_ten_steps_only():
    clock = StepClock()
    assert clock.left(3) == ""
    for moment in [0, 100, *range(101, 111)]:
        clock.tick(moment)
    assert clock.left(3) == "about 3 s left"


def test_a_clock_that_is_set_changes_no_estimate():
    clock = StepClock()
    for moment in (5000, 5010, 20, 30, 40):
        clock.tick(moment)
    assert clock.left(3) == "about 30 s left"
    forward = StepClock()
    for moment in (0, 10, 36_020, 36_030, 36_040):
        forward.tick(moment)
    assert forward.left(3) == "about 30 s left"
    turned = StepClock()
    for moment in (5000, 20):
        turned.tick(moment)
    assert turned.left(3) == "", "nothing is known"


def test_supervised_training_shows_loss_and_steps():
    state = SupervisedState(total=100)
    assert state.describe() == "building the trainer"
    state.take({"step": 7, "data": {"train/loss": 0.51234}})
    assert state.describe() == "7 of 100 steps done | loss 0.512"


def test_a_line_that_a_full_disk_cut_does_not_end_a_run(tmp_path):
    path, state = tmp_path / "events.jsonl", TrainingState()
    with ProgressReporter(path, state, line_every_seconds=1000, stream=io.StringIO()):
        path.write_text('{"event": "st\n{"time": 0.0, "event": "ready", "step": 0, "total_steps": 4}\n')
    assert state.total == 4


@pytest.mark.slow
def test_lines_appear_while_the_file_grows_and_half_a_line_waits(tmp_path):
    path, stream = tmp_path / "events.jsonl", io.StringIO()
    path.write_text(json.dumps({"time": 0.0, "event": "step", "step": 99}) + "\n")  # from an earlier start
    with ProgressReporter(path, TrainingState(), line_every_seconds=0.1, stream=stream) as reporter:
        with open(path, "a") as file:
            file.write(json.dumps({"time": 1.0, "event": "ready", "step": 0, "total_steps": 4, "resumed": False}))
            file.flush()
            time.sleep(1.0)
            assert reporter.state.total == 0
            file.write("\n")
        deadline = time.monotonic() + 20
        while "0 of 4 steps done" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.1)
    assert "0 of 4 steps done | ready" in stream.getvalue()
    assert "99" not in stream.getvalue()


def test_an_evaluation_tells_its_share_of_accepted_answers_and_how_long_the_rest_takes():
    state = EvaluationState(total=10, done=2)
    assert state.describe() == "2 of 10 samples"
    for ended, right in ((1.0, 1.0), (4.0, 0.0)):
        state.take({"answer": {"started": 0.0, "ended": ended}, "reward": {"acc": right}})
    assert state.describe() == "4 of 10 samples | 50% accepted | about 12 s left"


def test_a_step_without_credit_is_a_line_that_stays_with_the_reason_also_when_it_is_the_last(tmp_path):
    path, stream = tmp_path / "events.jsonl", io.StringIO()
    event = {
        "time": 1.0,
        "event": "credit_failed",
        "step": 4,
        "samples": 5,
        "wanted": 9,
        "reason": "KeyError: [x]\x1b[2J",
    }
    with ProgressReporter(path, TrainingState(), line_every_seconds=1000, stream=stream):
        path.write_text(json.dumps(event) + "\n")
    expected = "warning: in step 4 credit failed for 5 of 9 samples: KeyError: [x]␛[2J\n"
    assert stream.getvalue() == expected


def test_a_step_that_leaves_out_group_after_group_is_a_line_with_what_their_answers_got(tmp_path):
    path, stream = tmp_path / "events.jsonl", io.StringIO()
    event = {"time": 1.0, "event": "left_out", "step": 4, "groups": 80, "values": {"0": 78, "1": 2}}
    with ProgressReporter(path, TrainingState(), line_every_seconds=1000, stream=stream):
        path.write_text(json.dumps(event) + "\n")
    assert stream.getvalue() == (
        "warning: step 4 has left out 80 groups whose answers all got the same (78 with 0, 2 with 1) and keeps "
        "drawing: see algorithm.filter_groups.max_num_gen_batches\n"
    )


def test_missing_answers_are_a_line():
    event = {"time": 1.0, "event": "failed_prompts", "step": 4, "prompts": 3, "batch": 16}
    assert TrainingState().take(event) == (
        "warning: step 4 lacks answers of 3 of 16 prompts, whose agent loop or reward raised an error: see logs/"
    )


def test_a_validation_that_another_run_made_is_a_line():
    event = {"time": 1.0, "event": "validation_shared", "run": "grpo.s20"}
    assert TrainingState().take(event) == "validation before training: taken from grpo.s20, which began alike"
