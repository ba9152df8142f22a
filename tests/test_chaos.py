"""What benchmarks/chaos finds: each bad outcome of a disturbed run is reported, a right one is not."""

import json
import math
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from benchmarks.chaos import __main__ as chaos
from benchmarks.chaos.__main__ import SAVED_EVERY, SETTINGS, VICTIMS, TrialFolder, line_of
from benchmarks.chaos.checks import CAUSES, EQUAL, VALIDATED, Attempt, Kill, Trial, differences, more_than, wrong
from benchmarks.chaos.processes import MARK, RunProcesses, Scratch, is_alive, kill, left_running

pytestmark = pytest.mark.slow

KILL = Kill(pid=7, process="ray::WorkerDict", time=1e9, step=3, died=True)
FIRST = Attempt(1, "the run failed: ProcessDied: the worker WorkerDict on 10.0.0.1 died", 0, recorded=3, checkpoint=2)
SECOND = Attempt(0, "", ready=2, recorded=6, checkpoint=6)
RIGHT = Trial(0, 2, "actor", KILL, (FIRST, SECOND))


def changed(first: dict | None = None, second: dict | None = None, **fields) -> Trial:
    """The right trial with other fields of its starts and of itself."""
    return replace(RIGHT, attempts=(replace(FIRST, **first or {}), replace(SECOND, **second or {})), **fields)


WENT_ON = replace(RIGHT, attempts=(replace(SECOND, ready=0),))
BAD = [
    (changed(kill=None), "nothing was tested: no actor to kill"),
    (changed(kill=replace(KILL, died=False)), "ray::WorkerDict (7) survived SIGKILL"),
    (changed({"status": None}), "start 1 did not end"),
    (changed({"message": "step 3/6 of WorkerDic"}), "its message does not name the actor: step 3/6 of WorkerDic"),
    (changed({"message": ""}), "its message does not name the actor: it has none"),
    (
        changed({"message": "boom; see /runs/WorkerDict/logs"}),
        "its message does not name the actor: boom; see /runs/WorkerDict/logs",
    ),
    (
        changed({"message": "(WorkerDict pid=3, ip=10.0.0.1) boom"}),
        "its message does not name the actor: (WorkerDict pid=3, ip=10.0.0.1) boom",
    ),
    (changed({"status": 1}, victim="command"), "the killed command ended with 1"),
    (replace(WENT_ON, victim="command"), "the killed command ended with 0"),
    (replace(RIGHT, attempts=(FIRST,)), "it was not started again"),
    (changed(second={"status": 1}), "start 2 ended with 1"),
    (changed(second={"status": None}), "start 2 did not end"),
    (changed({"checkpoint": 0}, {"ready": 0}), "start 1 recorded step 3, but its last checkpoint is of step 0"),
    (changed(second={"checkpoint": 4}), "start 2 recorded step 6, but its last checkpoint is of step 4"),
    (changed(second={"ready": 0}), "start 2 began after step 0, not 2, the last checkpoint"),
    (changed(second={"ready": None}), "start 2 has no record of the step that it began after"),
    (changed({"ready": 2}), "start 1 began after step 2, not 0, the last checkpoint"),
    (replace(WENT_ON, attempts=(SECOND,)), "start 1 began after step 2, not 0, the last checkpoint"),
    (changed({"left": ("raylet (9) on port 6379",)}), "start 1: left raylet (9) on port 6379"),
    (changed(second={"left": ("/dev/shm/psm_1",)}), "start 2: left /dev/shm/psm_1"),
    (changed(different=("lacks step 6",)), "lacks step 6"),
]


@pytest.mark.parametrize(("trial", "found"), BAD, ids=[found for _, found in BAD])
def test_a_bad_outcome_is_reported_alone(trial: Trial, found: str):
    assert wrong(trial, SAVED_EVERY) == [found]
    assert found in line_of(trial)


@pytest.mark.parametrize("trial", [
    RIGHT, WENT_ON, changed({"status": -9, "message": ""}, victim="command"),
    changed({"ready": None, "recorded": 0, "checkpoint": 0}, {"ready": 0}),
])  # fmt: skip
def test_a_right_outcome_is_none(trial: Trial):
    assert wrong(trial, SAVED_EVERY) == []
    assert line_of(trial).endswith("right")


MESSAGES = {
    "task runner": "ActorDiedError: The actor died unexpectedly.\n\tclass_name: SkillCreditTaskRunner",
    "actor": FIRST.message,
    "engine": "ProcessDied: vLLM's engine died: its log names no exception (worker-1.out)",
    "reward worker": "the worker RewardLoopWorker on 10.0.0.1 died",
    "sandbox": "step 3: 100% of the samples could not be verified. The sandbox or a verifier is down",
    "raylet": "The node with node id: 3f2 and address: 10.0.0.1 has been marked dead",
}


@pytest.mark.parametrize("victim", MESSAGES)
def test_a_message_names_its_own_victim_and_no_other(victim: str):
    named = [other for other in MESSAGES if not wrong(changed({"message": MESSAGES[victim]}, victim=other), 2)]
    assert named == [victim]


def test_every_victim_has_a_process_and_a_message():
    assert list(VICTIMS) == list(CAUSES)
    assert set(CAUSES) == {*MESSAGES, "command"}


def rows(steps: int, **last: float) -> list[dict[str, float]]:
    """Metrics of these steps, the last one validated and with the given values."""
    made = [
        {"step": step, "timing_s/step": 9.0 + step} | dict.fromkeys(EQUAL, 0.1 * step) for step in range(1, steps + 1)
    ]
    made[-1] |= dict.fromkeys(VALIDATED, 0.5) | last
    return made


def test_equal_numbers_differ_in_nothing_whatever_the_time_of_a_step():
    slower = [row | {"timing_s/step": 99.0} for row in rows(3)]
    assert differences(slower, rows(3)) == []
    assert differences([*rows(2)[:1], *slower], rows(3)) == []  # step 1 was trained twice


@pytest.mark.parametrize("key", [*EQUAL, *VALIDATED])
def test_the_last_bit_of_a_number_is_a_difference_and_so_is_a_missing_one(key: str):
    value = rows(3)[-1][key]
    other = math.nextafter(value, 1)
    assert differences(rows(3, **{key: other}), rows(3)) == [f"step 3: {key} {other}, not {value}"]
    without = [{name: value for name, value in row.items() if name != key} for row in rows(3)]
    assert f"{key} None, not" in differences(without, rows(3))[0]
    assert differences(rows(3, **{key: math.nan}), rows(3)) == [f"step 3: {key} nan, not {value}"]


@pytest.mark.parametrize("alone", [{"actor/grad_norm": math.nan}, {}])
def test_numbers_that_the_undisturbed_run_lacks_are_no_agreement(alone: dict):
    one = {"step": 1} | dict.fromkeys(EQUAL, 0.1) | {"actor/grad_norm": math.nan}
    compared = {key: value for key, value in one.items() if key != "actor/grad_norm"} | alone
    assert differences([one], [compared]) == ["step 1: the undisturbed run has no actor/grad_norm to compare"]


def test_a_step_trained_twice_counts_both_times():
    first = rows(1, **{"actor/entropy": 7.0})
    assert differences([*first, *rows(3)], rows(3))[0].startswith("step 1: actor/entropy 7.0, not")


def test_steps_that_only_one_of_the_runs_has_are_named():
    assert differences(rows(3)[:2], rows(3)) == ["lacks step 3"]
    extra = rows(3)[-1] | {"step": 4}
    assert differences([*rows(3), extra], rows(3)) == ["has step 4, which the undisturbed run has not"]


def test_temporary_files_are_compared_by_kind():
    usual = ["ray", "torch_12", "1f2e3d4c-aaaa-bbbb-cccc-0123456789ab"]
    assert more_than(["ray", "torch_77", "deadbeef-0000-1111-2222-333344445555"], usual) == []
    assert more_than(["ray", "case.17", "torch_1.sock"], usual) == ["case.17", "torch_1.sock"]


def test_a_trial_is_read_back_and_only_for_the_arguments_that_it_had(tmp_path: Path):
    trials = TrialFolder(tmp_path, ["data.seed=1"], "c0ffee")
    trials.keep(RIGHT)
    assert Trial.of(json.loads(json.dumps(asdict(RIGHT)))) == RIGHT
    again = TrialFolder(tmp_path, ["data.seed=1"], "c0ffee")
    assert again.kept(RIGHT.seed, RIGHT.number, RIGHT.victim) == RIGHT
    others = [again.kept(1, 2, "actor"), again.kept(0, 3, "actor"), again.kept(0, 2, "engine")]
    for overrides, commit in ((["data.seed=2"], "c0ffee"), ([], "c0ffee"), (["data.seed=1"], "c0ffee0")):
        others.append(TrialFolder(tmp_path, overrides, commit).kept(0, 2, "actor"))
    assert others == [None] * 6
    assert json.loads((trials.path / "arguments.json").read_text())["arguments"] == [*SETTINGS, "data.seed=1"]


# A program that starts another without its environment, and ends.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={})
print(child.pid, flush=True)
time.sleep(0.1 if sys.argv[1:] else 600)
"""


@contextmanager
def running(code: str, *words: str, name: str = "none") -> Iterator[subprocess.Popen[str]]:
    """A Python program as a process of the run of this name."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], env=os.environ | {MARK: name}, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


SLEEP = "import time; time.sleep(600)"


def test_a_process_that_outlives_its_run_is_found_and_ended_and_others_are_not():
    with running(SLEEP, name="chaos_left") as left, running(SLEEP, name="chaos_other") as other:
        processes = RunProcesses("chaos_left", left.pid)
        found = left_running(processes, seconds=0.2)
        assert [one.startswith("python") and f"({left.pid})" in one for one in found] == [True]
        assert left.wait(10) == -9
        assert other.poll() is None
        assert left_running(processes, seconds=0.2) == []


def test_a_process_without_the_run_s_environment_is_found_by_the_command_that_started_it():
    with running(PARENT, name="chaos_parent") as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        processes = RunProcesses("chaos_parent", parent.pid)
        assert {one.pid for one in processes.alive()} == {parent.pid, child}
        parent.kill()
        parent.wait()
        (found,) = left_running(processes, seconds=0.2)
        assert f"({child})" in found


def test_a_left_process_is_named_with_the_port_that_it_holds():
    code = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
    with running(f"{code}; time.sleep(600)", name="chaos_port") as holder:
        assert holder.stdout
        port = int(holder.stdout.readline())
        (found,) = left_running(RunProcesses("chaos_port", holder.pid), seconds=0.2)
        assert found.endswith(f"on port {port}")
    with socket.create_server(("127.0.0.1", port)):
        pass  # it is free again


def test_a_kill_reports_whether_the_process_was_there():
    with running(SLEEP) as process:
        victim = psutil.Process(process.pid)
        assert kill(victim)
        assert not kill(victim)


def test_what_is_new_in_the_scratch_folder_and_in_shared_places_is_left(tmp_path: Path):
    (tmp_path / "before").touch()
    with Scratch([f"{tmp_path}/*"]) as scratch:
        assert (scratch.names(), scratch.elsewhere([])) == ([], [])
        (scratch.path / "case").mkdir()
        (tmp_path / "psm_1").touch()
        assert (scratch.names(), scratch.elsewhere([])) == (["case"], [f"{tmp_path}/psm_1"])
        (tmp_path / "psm_2").write_bytes(b"x")
        with open(tmp_path / "psm_2", "r+b") as file, mmap.mmap(file.fileno(), 1):
            assert scratch.elsewhere([]) == [f"{tmp_path}/psm_1"]  # a living process uses the other
        assert len(str(scratch.path)) < 25
    assert not scratch.path.exists()


def test_a_socket_is_left_behind_when_nothing_listens_at_it(tmp_path: Path):
    path = f"{tmp_path}/weights.sock"
    with Scratch([f"{tmp_path}/*.sock"]) as scratch:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            assert scratch.elsewhere([]) == []  # of another run, which lives
        assert scratch.elsewhere([]) == [path]


SHARES = """
import mmap, sys, time
with open(sys.argv[1], "w+b") as file:
    file.write(b"x" * 4096)
    file.flush()
    with mmap.mmap(file.fileno(), 4096):
        print("mapped", flush=True)
        time.sleep(60)
"""


def test_shared_memory_is_that_of_the_program_which_mapped_it():
    name = f"/dev/shm/chaos_test_{os.getpid()}"
    others = Path(f"{name}_of_another")
    try:
        with Scratch() as scratch:
            others.touch()
            with subprocess.Popen([sys.executable, "-c", SHARES, name], stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "mapped\n"
                run = RunProcesses("not marked", process.pid)
                run.alive()
                assert name in run.mapped
                assert scratch.elsewhere(run.mapped) == []  # it lives
                process.kill()
            assert scratch.elsewhere(run.mapped) == [name]
    finally:
        others.unlink()
        Path(name).unlink(missing_ok=True)


# What a run does, in seconds: steps with metrics, checkpoints, a sandbox without which it fails. `forgetful`: it begins
# at 0 again; `untidy`: it leaves a file; `silent`: it fails without a message.
TRAIN = """
import json, os, subprocess, sys, tempfile, time
from pathlib import Path
words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
run = Path(words["run.root"], words["run.experiment"], words["run.name"])
marker = run / "checkpoints" / "latest_checkpointed_iteration.txt"
marker.parent.mkdir(parents=True, exist_ok=True)
def log(name, **row):
    with open(run / name, "a") as file:
        file.write(json.dumps({"time": time.time(), **row}) + "\\n")
waits = words["run.name"] != "alone" and not (run / "events.jsonl").exists()  # for the kill, on a busy machine, too
begun = int(marker.read_text()) if marker.exists() and "forgetful" not in sys.argv else 0
server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "rewards.sandbox serve"])
log("events.jsonl", event="start")
log("events.jsonl", event="ready", step=begun)
for step in range(begun + 1, 7):
    time.sleep(0.05)
    if waits and step == 4:
        server.wait(60)
    if server.poll() is not None and step > 3:
        if "silent" not in sys.argv:
            log("events.jsonl", event="failed", error="the sandbox is down")
        sys.exit(1)
    if step % 2 == 0:
        marker.write_text(str(step))
    log("metrics.jsonl", step=step, **{key: step / 10 for key in KEYS})
if "untidy" in sys.argv:
    tempfile.mkstemp(prefix=f"left_by_{run.name}_")
server.kill()
log("events.jsonl", event="end")
""".replace("KEYS", repr(EQUAL))


def benchmark(folder: Path, monkeypatch: pytest.MonkeyPatch, *flags: str) -> int:
    """The exit status of a benchmark with one run, whose sandbox is killed."""
    (folder / "train.py").write_text(TRAIN)
    monkeypatch.setattr(chaos, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(chaos, "COMMAND", (sys.executable, str(folder / "train.py")))
    words = ["chaos", "--runs", "1", "--victims", "sandbox", "--out", str(folder), *flags]
    monkeypatch.setattr(sys, "argv", words)
    return chaos.main()


def test_a_run_that_resumes_is_right_and_is_not_repeated(tmp_path: Path, monkeypatch, capsys):
    assert benchmark(tmp_path, monkeypatch) == 0
    first = capsys.readouterr().out
    assert "ended with 1, then 0     right\n1 of 1 runs right; 0 survived without a restart" in first
    (record,) = tmp_path.glob("*/outcomes.jsonl")
    trial = Trial.of(json.loads(record.read_text()))
    assert trial.kill
    assert trial.kill.died
    assert trial.attempts[0].checkpoint == trial.attempts[1].ready
    monkeypatch.setattr(chaos.Start, "__init__", None)  # nothing may be started again
    assert benchmark(tmp_path, monkeypatch) == 0
    assert capsys.readouterr().out == "\n".join(first.splitlines()[1:]) + "\n"


def test_a_run_on_a_faster_machine_than_the_undisturbed_one_is_killed_before_its_end(tmp_path, monkeypatch, capsys):
    assert benchmark(tmp_path, monkeypatch) == 0
    (record,) = tmp_path.glob("*/alone.json")
    alone = json.loads(record.read_text())
    assert len(alone["seconds"]) == 6
    record.write_text(json.dumps(alone | {"seconds": [1000.0] * 6}))
    assert benchmark(tmp_path, monkeypatch, "--seed", "2") == 0
    assert "1 of 1 runs right" in capsys.readouterr().out


def test_a_run_that_misbehaves_ends_the_benchmark_with_status_1(tmp_path: Path, monkeypatch, capsys):
    assert benchmark(tmp_path, monkeypatch, "forgetful", "silent", "untidy") == 1
    (line,) = (one for one in capsys.readouterr().out.splitlines() if "ended with 1, then 0" in one)
    assert "its message does not name the sandbox: it has none" in line
    assert "start 2 began after step 0, not 2, the last checkpoint" in line
    assert "start 2: left left_by_" in line


def test_a_run_of_the_same_name_in_another_benchmark_is_left_alone(tmp_path: Path, monkeypatch):
    with running(SLEEP, name="alone") as first, running(SLEEP, name="s0.r0") as second:
        assert benchmark(tmp_path, monkeypatch) == 0
        assert (first.poll(), second.poll()) == (None, None)


def test_an_interrupted_benchmark_leaves_no_run_behind(tmp_path: Path, monkeypatch):
    started: list[psutil.Process] = []

    def interrupted(start: chaos.Start, usual: object = None) -> None:
        started.extend(start._processes.alive())
        raise KeyboardInterrupt

    monkeypatch.setattr(chaos.Start, "ended", interrupted)
    with pytest.raises(KeyboardInterrupt):
        benchmark(tmp_path, monkeypatch)
    assert started
    assert not any(map(is_alive, started))
