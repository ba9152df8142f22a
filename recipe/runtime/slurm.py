"""Ray on all nodes of a Slurm job for as long as a study's script runs: ``scripts/slurm/recipe.sbatch`` calls it.

``python -m recipe.runtime.slurm SCRIPT ARGUMENT ...`` in a job of several nodes. It starts Ray on the first node, then
on the others, runs the script on the first with PLATFORM=gpu_ray, and stops Ray. Slurm's SIGTERM is passed on to the
script. Exit status: that of the script; 1 if Ray does not start. Environment: RAY_WAIT, RAY_PORT, RAY, DRY_RUN.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType

from recipe.runtime import TERMINATED

FAILED = 1


class RayDidNotStart(Exception):
    """Ray is not on all nodes of the job; the message addresses the user."""


class Job:
    """A job on these hosts, the first of which is the head. environment: of every command; DRY_RUN: only print them."""

    def __init__(self, hosts: Sequence[str], environment: Mapping[str, str]) -> None:
        self.head = hosts[0]
        self.port = environment.get("RAY_PORT") or "6379"
        self.ray = environment.get("RAY") or ".venv/bin/ray"
        self.wait_seconds = int(environment.get("RAY_WAIT") or 300)
        self.dry = bool(environment.get("DRY_RUN"))
        self.address = f"{self.head}:{self.port}"
        # Ray's own default where the user has a token; one is made where there is none (`_make_token`).
        mode = environment.get("RAY_AUTH_MODE") or "token"
        self.environment = {
            **environment, "RAY_ADDRESS": self.address, "PLATFORM": "gpu_ray", "RAY_AUTH_MODE": mode
        }  # fmt: skip
        self._steps: list[subprocess.Popen[bytes]] = []
        self._study: subprocess.Popen[bytes] | None = None

    def run(self, nodes: int, study: Sequence[str]) -> int:
        """Start Ray on `nodes` nodes, run the study's script, stop Ray; returns the script's exit status."""
        signal.signal(signal.SIGTERM, self._pass_on)
        self._make_token()
        try:
            self._stay("-w", self.head, "start", "--head", f"--port={self.port}", nodes=1)
            self._await(1)
            self._stay("-x", self.head, "start", f"--address={self.address}", nodes=nodes - 1)
            self._await(nodes)
            return self._run_study(study)
        finally:
            self._end_steps()

    def _make_token(self) -> None:
        """In token mode `ray start` makes none. The user's home, where Ray keeps it, is that of all nodes."""
        if self.environment["RAY_AUTH_MODE"] != "token":
            return
        command = [self.ray, "get-auth-token", "--generate"]
        print(f"+ {shlex.join(command)}", file=sys.stderr, flush=True)
        if self.dry:
            return
        made = subprocess.run(
            command, env=self.environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if made.returncode:
            raise RayDidNotStart(
                f"no token for Ray (RAY_AUTH_MODE=disabled does without): {made.stderr.strip()[-300:]}"
            )

    def _stay(self, option: str, host: str, *ray: str, nodes: int) -> None:
        """A step that lasts as long as the job: Slurm ends whatever a step leaves behind when it is over."""
        command = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", option, host, self.ray, *ray, "--block"]
        print(f"+ {shlex.join(command)} &", file=sys.stderr, flush=True)
        if not self.dry:
            self._steps.append(subprocess.Popen(command, env=self.environment))

    def _await(self, nodes: int) -> None:
        """Wait until the cluster has so many nodes; RayDidNotStart if a step ends before, or it takes too long."""
        until = time.monotonic() + self.wait_seconds
        while not self.dry and (present := nodes_in(self._status())) < nodes:
            if any(step.poll() is not None for step in self._steps):
                raise RayDidNotStart("ray start ended (its messages are above)")
            if time.monotonic() > until:
                print(*self._status().splitlines()[-3:], sep="\n", file=sys.stderr)
                raise RayDidNotStart(
                    f"Ray has {present} of {nodes} nodes after {self.wait_seconds} s (ray status is above); "
                    "RAY_WAIT=SECONDS waits longer"
                )
            time.sleep(1)

    def _status(self) -> str:
        command = [self.ray, "status", "--address", self.address]
        done = subprocess.run(
            command, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )  # fmt: skip
        return done.stdout

    def _run_study(self, study: Sequence[str]) -> int:
        command = ["bash", *study]
        print(f"+ {shlex.join(command)}", file=sys.stderr, flush=True)
        if self.dry:
            return 0
        self._study = subprocess.Popen(command, env=self.environment)
        status = self._study.wait()
        return status if status >= 0 else 128 - status

    def _pass_on(self, _number: int, _frame: FrameType | None) -> None:
        """Slurm's notice: the script ends in its own time; before it started, the job ends."""
        if self._study is None:
            raise SystemExit(TERMINATED)
        self._study.terminate()

    def _end_steps(self) -> None:
        for step in self._steps:
            step.terminate()
        for step in self._steps:
            step.wait()


def nodes_in(status: str) -> int:
    """The number of active nodes in the output of `ray status`."""
    active = re.search(r"^Active:$(.*?)(?:^Pending:|\Z)", status, re.MULTILINE | re.DOTALL)
    return sum(map(int, re.findall(r"^\s*(\d+) node_", active[1], re.MULTILINE))) if active else 0


def main(study: Sequence[str]) -> int:
    """Run a study's script in this job; returns the exit status."""
    environment = os.environ
    if environment.get("DRY_RUN"):
        hosts = ["node1", "node2"]
    else:
        command = ["scontrol", "show", "hostnames", environment["SLURM_JOB_NODELIST"]]
        hosts = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.split()
    nodes = int(environment.get("SLURM_JOB_NUM_NODES") or environment["NODES"])
    try:
        return Job(hosts, environment).run(nodes, study)
    except RayDidNotStart as error:
        print(f"stopped: {error}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
