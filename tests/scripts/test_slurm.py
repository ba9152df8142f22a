"""Ray on a Slurm cluster lives as long as the job, tested with stand-ins for Slurm's and Ray's commands."""

import os
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow  # waits for Ray to start

ROOT = Path(__file__).parents[2]

# Like Slurm: a step's command has its own process group, which is killed when the command exits.
SRUN = """#!/usr/bin/env python3
import os, signal, subprocess, sys
command = sys.argv[1:]
while command[0].startswith("-"):
    command = command[2:] if command[0] in ("-w", "-x") else command[1:]
step = subprocess.Popen(command, start_new_session=True)
signal.signal(signal.SIGTERM, lambda *_: os.killpg(step.pid, signal.SIGTERM))
status = step.wait()
try:
    os.killpg(step.pid, signal.SIGKILL)
except ProcessLookupError:
    pass
sys.exit(status)
"""
# `start` leaves a daemon; with --block it waits until that exits; it makes no token. `status` counts the live daemons.
RAY = """#!/usr/bin/env python3
import os, pathlib, subprocess, sys
nodes = pathlib.Path(os.environ["NODES_FOLDER"])
token = nodes.parent / "token"
if sys.argv[1:] == ["get-auth-token", "--generate"]:
    token.touch()
elif os.environ["RAY_AUTH_MODE"] == "token" and not token.exists():
    sys.exit("AuthenticationError: no token")
elif sys.argv[1] == "status":
    living = [pid.name for pid in nodes.iterdir() if pathlib.Path("/proc", pid.name).exists()]
    print("Active:", *(f" 1 node_{pid}" for pid in living), "Pending:", " (no pending nodes)", sep="\\n")
elif "--head" not in sys.argv and os.environ.get("WORKERS") == "fail":
    sys.exit("cannot reach the head")
elif "--head" not in sys.argv and os.environ.get("WORKERS") == "hang":
    subprocess.run(["sleep", "600"])
else:
    daemon = subprocess.Popen(["sleep", "600"])
    (nodes / str(daemon.pid)).touch()
    if "--block" in sys.argv:
        daemon.wait()
"""


@pytest.fixture
def job(tmp_path: Path):
    """Run the batch script on two nodes with a study that prints the number of daemons; (status, output, errors)."""
    (tmp_path / "nodes").mkdir()
    commands = {"srun": SRUN, "ray": RAY, "scontrol": "#!/bin/sh\nprintf 'a\\nb\\n'\n"}
    for name, text in commands.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    study = tmp_path / "study.sh"
    study.write_text('sleep 1; "$RAY" status | grep -c node_ > "$1"\n')

    def run(**environment: str) -> tuple[int, str, str]:
        told = tmp_path / "told"
        variables = os.environ | {
            "PATH": f"{tmp_path}:{os.environ['PATH']}", "RAY": str(tmp_path / "ray"), "RAY_WAIT": "20",
            "NODES_FOLDER": str(tmp_path / "nodes"), "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "[a-b]",
            "SLURM_SUBMIT_DIR": str(ROOT),
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "scripts/slurm/recipe.sbatch", str(study), str(told)],
            cwd=ROOT, env=variables | environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.returncode, told.read_text() if told.exists() else "", done.stderr

    yield run
    deadline = time.monotonic() + 10
    daemons = [int(pid.name) for pid in (tmp_path / "nodes").iterdir()]
    while any(psutil.pid_exists(pid) for pid in daemons) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(psutil.pid_exists(pid) for pid in daemons)


def test_ray_lives_on_all_nodes_while_the_study_runs_and_ends_with_it(job):
    status, told, errors = job()
    assert (status, told) == (0, "2\n"), errors


def test_a_user_without_a_token_gets_one_unless_ray_asks_for_none(job, tmp_path: Path):
    assert job()[0] == 0
    assert (tmp_path / "token").exists()
    (tmp_path / "token").unlink()
    status, _, errors = job(RAY_AUTH_MODE="disabled")
    assert status == 0, errors
    assert not (tmp_path / "token").exists()


def test_a_node_on_which_ray_does_not_start_ends_the_job(job):
    status, told, errors = job(WORKERS="fail")
    assert (status, told) == (1, "")
    assert "cannot reach the head" in errors
    assert "stopped: ray start ended" in errors


def test_nodes_that_do_not_come_end_the_job_in_time(job):
    status, told, errors = job(WORKERS="hang", RAY_WAIT="10")
    assert (status, told) == (1, "")
    assert "stopped: Ray has 1 of 2 nodes after 10 s" in errors


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_slurms_notice_reaches_the_study_which_ends_in_its_own_time(job, tmp_path: Path, nodes: str):
    study = tmp_path / "study.sh"
    study.write_text('trap "sleep 1; echo saved > $1; exit 143" TERM\ntouch "$1"\nwhile :; do sleep 0.1; done\n')
    told = tmp_path / "told"

    def give_notice() -> None:
        while not told.exists():
            time.sleep(0.05)
        batch = next(one for one in psutil.Process().children() if str(study) in one.cmdline())
        batch.terminate()

    notice = threading.Thread(target=give_notice)
    notice.start()
    status, text, errors = job(SLURM_JOB_NUM_NODES=nodes)
    notice.join()
    assert (status, text) == (143, "saved\n"), errors
