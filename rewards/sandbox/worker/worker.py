"""One slot of the server: receives jobs from the front and runs them one at a time on its two fork servers.

        front (server.py)  <- one socket ->  worker (this process)
                                              |  launches, descriptors      ^ output, frames
                              fork server of programs            fork server of judges
                                  child: the program  <- calls ->  child: the tests

The worker never runs model code and never evaluates received data; it reads bytes, counts them and compares text.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from rewards.sandbox.inside import outcomes
from rewards.sandbox.inside.frames import BadFrame, receive_frame, send_frame
from rewards.sandbox.isolation import syscalls
from rewards.sandbox.isolation.layers import Isolation
from rewards.sandbox.isolation.namespaces import may_become
from rewards.sandbox.worker import zygote
from rewards.sandbox.worker.check import Check
from rewards.sandbox.worker.checking import case_results
from rewards.sandbox.worker.execution import (
    Cancelled,
    Child,
    Clock,
    End,
    ForkServerGone,
    FrontGone,
    Limits,
    ServerHandle,
    WorkerUnusable,
)
from rewards.sandbox.worker.languages import COMMANDS
from rewards.sandbox.worker.streams import memory_file

MAX_FETCHED = 16 << 20
MAX_ALL_FETCHED = 32 << 20
COMPILER_MEMORY_MB = 2048
CHUNK_SECONDS = 0.02


class Worker:
    """Serves jobs on the front's socket until it closes."""

    def __init__(self, front: socket.socket, settings: dict[str, Any]) -> None:
        self.front = front
        self.settings = settings
        self.clock = Clock(front)
        self.token: str | None = None
        zygote.preload()
        self.programs, hello = self._start_server(settings["user"])
        self.judges, judge_hello = self._start_server(settings["user"] + 2)
        missing = {**judge_hello["missing"], **hello["missing"]}
        active = sorted(set(hello["active"]) & set(judge_hello["active"]))
        self._give_up_root(settings["user"] + 4)
        send_frame(front, {"ready": True, "active": active, "missing": missing})

    def _start_server(self, user: int) -> tuple[ServerHandle, dict[str, Any]]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        isolation = Isolation(
            wanted=self.settings["isolate"],
            outside_user=user,
            python=self.settings["python"],
            quota_mb=self.settings["quota_mb"],
        )

        def serve() -> NoReturn:
            ours.close()
            self.front.close()
            zygote.ForkServer(theirs, isolation).serve()

        isolation.fork_inside(serve)
        theirs.close()
        server = ServerHandle(ours)
        server.order(zygote.START)
        hello, _ = server.receive()
        return server, json.loads(hello)

    def _give_up_root(self, user: int) -> None:
        if self.settings["isolate"] and may_become(user):
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)

    def serve(self) -> NoReturn:
        """Run jobs until the front is gone; an unusable worker exits, and the front replaces it."""
        while True:
            try:
                self._serve_one(receive_frame(self.front))
            except (FrontGone, EOFError, ConnectionError, BrokenPipeError):
                os._exit(0)
            except (WorkerUnusable, BadFrame) as error:
                with contextlib.suppress(OSError):
                    self._send({"broken": str(error), "before": isinstance(error, ForkServerGone)})
                os._exit(1)

    def _send(self, message: dict[str, Any]) -> None:
        """Send a message about the job with the current token, by which the server knows which job it is about."""
        send_frame(self.front, {"token": self.token, **message})

    def _serve_one(self, message: dict[str, Any]) -> None:
        if "cancel" in message:
            # The cancellation crossed the end of its job.
            self.token = message["cancel"]
            self._send({"cancelled": True})
            return
        self.token = self.clock.token = message["token"]
        try:
            self._answer(message)
        except Cancelled:
            self._send({"cancelled": True})

    def _answer(self, job: dict[str, Any]) -> None:
        # Results of quick cases are sent together: a message per case would cost more than the case.
        self.programs.launched = self.judges.launched = False
        chunk: list[dict[str, Any]] = []
        sent = before = time.monotonic()
        done = False
        try:
            for result in self.results(job):
                now = time.monotonic()
                chunk.append({**result, "busy": round(now - before, 6)})
                before = now
                if result.get("lost") and job.get("kill_ends"):
                    break  # the server runs it again: further results would be discarded
                if now - sent > CHUNK_SECONDS:
                    self._send({"results": chunk, "done": False})
                    chunk, sent = [], now
            done = True
        finally:
            # Results known so far of a cancelled or failed job are sent, so that they are not computed again.
            if done or chunk:
                self._send({"results": chunk, "done": done})

    def results(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the results of a job: one for a run, one per case for a check."""
        limits = Limits(job["memory_mb"], int(job["timeout"]) + 2)
        if "cases" in job:
            yield from case_results(Check(job, self.clock, self.programs, self.judges, limits))
        elif job["language"] == "python":
            payload = {"mode": "script", "code": job["code"], "files": job.get("files"), "reuse": False}
            yield self._run(payload, job, limits)
        else:
            yield self._run_command(job, limits)

    def _run_command(self, job: dict[str, Any], limits: Limits) -> dict[str, Any]:
        language = COMMANDS[job["language"]]
        payload = {"mode": "command", "code": job["code"], "source": language.source, "files": job.get("files")}
        if not language.compile:
            return self._run({**payload, "argv": language.run}, job, limits, zygote.EXECUTES)
        memory = max(job["memory_mb"], COMPILER_MEMORY_MB)
        compiling = Limits(memory, int(job["compile_timeout"]) + 2)
        compile_job = {**job, "timeout": job["compile_timeout"], "stdin": None, "fetch": []}
        try:
            compiled = self._run(
                {**payload, "argv": language.compile}, compile_job, compiling, zygote.EXECUTES | zygote.KEEP_FOLDER
            )
        except BaseException:
            self.programs.order(zygote.CLEAN)
            raise
        if compiled["outcome"] != outcomes.PASSED:
            self.programs.order(zygote.CLEAN)
            failed = outcomes.SYNTAX_ERROR if compiled["outcome"] == outcomes.RUNTIME_ERROR else compiled["outcome"]
            return {**compiled, "outcome": failed, "compile": compiled, "ran": False}
        result = self._run({"mode": "command", "argv": language.run}, job, limits, zygote.EXECUTES)
        return {**result, "compile": compiled}

    def _run(self, payload: dict[str, Any], job: dict[str, Any], limits: Limits, flags: int = 0) -> dict[str, Any]:
        stdin = memory_file(job["stdin"]) if job.get("stdin") else None
        fetch = job.get("fetch")
        child = Child(self.programs, payload, limits, job["output_limit"], stdin=stdin, flags=flags, fetch=fetch)
        if stdin is not None:
            os.close(stdin)
        try:
            in_time = self.clock.limited(lambda: child.report is not None, [child], job["timeout"])
            elapsed = time.monotonic() - child.started
            report = child.end(self.clock)
            return _run_result(child, report, in_time, elapsed)
        finally:
            child.end(self.clock)
            child.close()


def _run_result(child: Child, report: End, in_time: bool, elapsed: float) -> dict[str, Any]:
    code = report.code if in_time else None
    outcome, error_type, error_line = outcomes.classify_end(code, child.stderr.ending())
    if child.over_limit:
        outcome, error_type, error_line = outcomes.OUTPUT_LIMIT, None, None
        code = -signal.SIGKILL  # also for a program that exited before the kill arrived, for a deterministic answer
    elif report.killed == zygote.FOR_MEMORY:
        outcome, error_type, error_line = outcomes.MEMORY, None, "memory limit"
    return {
        "outcome": outcome,
        "return_code": None if outcome == outcomes.TIMEOUT else code,
        "stdout": child.stdout.text(),
        "stderr": child.stderr.text(),
        "stdout_truncated": child.stdout.truncated,
        "stderr_truncated": child.stderr.truncated,
        "error_type": error_type,
        "error_line": error_line,
        "lost": report.lost,
        "time": elapsed,
        "cpu": report.cpu,
        "files": _fetched(child),
    }


def _fetched(child: Child) -> list[str | None]:
    """The files that the job requests, in its order, as base64; None for one that is missing or exceeds a size
    limit, alone or together with those before it."""
    contents: list[str | None] = []
    left = MAX_ALL_FETCHED
    for descriptor in child.fetched:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > min(MAX_FETCHED, left):
            contents.append(None)
            continue
        left -= status.st_size
        with open(descriptor, "rb", closefd=False) as file:
            contents.append(base64.b64encode(file.read(MAX_FETCHED)).decode())
    return contents


def main() -> NoReturn:
    """Entry point of the process that the pool starts: the front's socket is descriptor 3."""
    front = socket.socket(fileno=3)
    os.set_inheritable(3, False)
    settings = receive_frame(front)
    sys.path.extend(path for path in settings["packages"] if path not in sys.path)
    os.environ.clear()
    os.environ.update(settings["environment"])
    Worker(front, settings).serve()
