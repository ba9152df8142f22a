"""A node's GPUs each get a server. The stand-in for vLLM is a process of `openai_server.py` that takes its options."""

import os
import re
import sys
from pathlib import Path

import pytest

from recipe import evaluate, probe
from recipe.evaluation import ServerError
from recipe.evaluation.folder import EvaluationFolder
from recipe.evaluation.vllm_servers import cpu_environment, cpu_flags, gpu_groups, visible_gpus
from tests.models import make_model
from tests.recipe.evaluation import openai_server


@pytest.mark.parametrize(
    ("gpus", "options", "groups"),
    [
        ("0 1 2", "", ["0", "1", "2"]),
        ("4 5 6 7", "--tensor-parallel-size 2 --dtype half", ["4,5", "6,7"]),
        ("0 1 2 3 4", "--tensor_parallel_size=2", ["0,1", "2,3"]),
        ("0 1 2 3", "-tp 2 -pp=2", ["0,1,2,3"]),
        ("0 1", "--data-parallel-size 2", [None]),  # vLLM's own replicas
        ("", "", [None]),
    ],
)
def test_every_group_of_gpus_has_its_own_server(gpus, options, groups):
    assert gpu_groups(gpus.split(), options.split()) == groups


def test_a_server_that_needs_more_gpus_than_there_are_is_refused():
    with pytest.raises(ServerError, match="'-tp 4': a server needs 4 GPUs, and 2 are visible"):
        gpu_groups(["0", "1"], ["-tp", "4"])


@pytest.mark.parametrize(("named", "gpus"), [("2,GPU-5e", ["2", "GPU-5e"]), ("0,-1,1", ["0"]), ("", [])])
def test_the_visible_gpus_are_those_that_cuda_would_take(monkeypatch, named, gpus):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_gpus() == gpus


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node with GPUs 4 to 7; returns the options of a model on it."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {openai_server.__file__} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    return ["--platform", "gpu", "--model", str(make_model(tmp_path / "m")), "--retries", "0"]


def started(out: Path) -> dict[str, str]:
    """GPUs and further options of each server, none of which is running any more."""
    logs = [log.read_text() for log in sorted(out.glob("vllm*.log"))]
    words = [found for log in logs for found in re.findall(r"^started (\d+) (\S*) ?(.*)$", log, re.MULTILINE)]
    for pid, _, _ in words:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    return {gpus: options for _, gpus, options in words}


@pytest.mark.slow
def test_servers_share_an_evaluation_and_end_with_it(tmp_path, data, node):
    out, more = tmp_path / "out", ["--vllm", "--tensor-parallel-size 2"]
    assert evaluate.main([*node, "--data", f"own={data}", "--out", str(out), *more]) == 0
    assert started(out) == dict.fromkeys(("4,5", "6,7"), "--tensor-parallel-size 2")
    assert EvaluationFolder(out).metrics["own"]["accepted@1"]["estimate"] == 1.0
    assert len(EvaluationFolder(out).run_info["servers"]) == 2


@pytest.mark.slow
def test_a_server_that_dies_is_reported_and_the_others_do_its_work(tmp_path, data, node, monkeypatch, capsys):
    monkeypatch.setenv("DIES", "5=2")
    out = tmp_path / "out"
    assert probe.main([*node, "--data", f"own={data}", "--out", str(out), "--samples", "8"]) == 0
    assert list(started(out)) == ["4", "5", "6", "7"]
    assert len(EvaluationFolder(out).journal().samples) == 48
    printed = capsys.readouterr().err
    assert re.search(r"/v1 was dropped \(.*; the other servers took over", printed)
    assert f"a vLLM server has ended: GPU 5: RuntimeError: GPU lost; all of its output: {out}/vllm.1.log" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dies", "why"),
    [("6=0", "vLLM did not start: GPU 6: RuntimeError: no CUDA"), ("4=1 5=1 6=1 7=1", "all servers have failed")],
)
def test_an_evaluation_without_servers_ends_with_their_reasons(tmp_path, data, node, monkeypatch, capsys, dies, why):
    monkeypatch.setenv("DIES", dies)
    assert evaluate.main([*node, "--data", f"own={data}", "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr().err
    assert why in printed
    assert printed.count("; all of its output: ") == len(dies.split())
    assert {one.partition("=")[0] for one in dies.split()} <= started(tmp_path / "out").keys()


def test_the_platforms_values_become_options_of_vllm_serve():
    assert cpu_flags() == ["--enforce-eager", "--block-size", "32", "--no-enable-chunked-prefill"]


def test_the_engine_gets_the_platforms_cache_and_compiles_nothing():
    assert cpu_environment() == {"VLLM_CPU_KVCACHE_SPACE": "1", "TORCH_COMPILE_DISABLE": "1"}
