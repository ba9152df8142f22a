"""`recipe.evaluate` against a real HTTP server that speaks the OpenAI protocol."""

import contextlib
import errno
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import recipe.evaluate
import recipe.probe
from data_prep.tasks import write_task_rows
from recipe.evaluate import main
from recipe.evaluation.folder import EvaluationFolder
from recipe.evaluation.samples import SampleJournal
from tests.models import make_model
from tests.recipe.evaluation.conftest import task
from tests.recipe.evaluation.openai_server import MODEL, Behaviour, serving
from workers.cpu import processor

pytestmark = pytest.mark.slow  # with HTTP servers


def run(out: Path, data: Path, *more: str) -> int:
    return main(["--data", f"own={data}", "--out", str(out), "--retries", "0", *more])


def test_the_folder_of_a_greedy_evaluation(tmp_path, data, capsys):
    with serving(Behaviour()) as url:
        assert run(tmp_path / "out", data, "--url", url, "--entropy") == 0
    folder = EvaluationFolder(tmp_path / "out")
    (dataset,) = folder.metrics
    found = folder.metrics[dataset]
    low = pytest.approx(6 / (6 + 1.96**2), abs=1e-4)  # Wilson: all of six
    assert found["accepted@1"] == {"estimate": 1.0, "low": low, "high": 1.0}
    assert (found["problems"], found["generated_tokens"]["mean"], found["entropy"]) == (6, 5.0, 0.5)
    (server,) = folder.run_info["servers"].values()
    assert (server["id"], server["max_model_len"]) == (MODEL, 8)
    assert folder.run_info["settings"]["model"] == MODEL
    lines = [json.loads(line) for line in (tmp_path / f"out/qa_logs/{dataset}.jsonl").read_text().splitlines()]
    assert len(lines) == 5
    assert all(line["response"].split()[-1] == line["prompt"][0]["content"].split()[-1] for line in lines)
    assert "100.0 [61.0, 100.0]" in capsys.readouterr().out


def test_sampled_answers_have_seeds_of_their_own_and_are_shared_among_the_servers(tmp_path, data):
    one, two = Behaviour(), Behaviour()
    with serving(one) as first, serving(two) as second:
        options = ("--sampling", "eval@k", "--samples", "4", "--k", "1", "4", "--url", first, second)
        assert run(tmp_path / "out", data, *options, "--concurrency", "4") == 0
    seeds = {request["seed"] for request in one.requests + two.requests}
    assert len(seeds) == len(one.requests + two.requests) == 24
    assert min(len(one.requests), len(two.requests)) > 0
    (found,) = EvaluationFolder(tmp_path / "out").metrics.values()
    right = sum(seed % 2 == 0 for seed in seeds)
    assert found["accepted@1"]["estimate"] == pytest.approx(right / 24)
    assert found["pass@4"]["estimate"] > found["accepted@1"]["estimate"]


def test_a_budget_pays_for_answers_until_it_is_spent(tmp_path, data):
    behaviour = Behaviour()
    with serving(behaviour) as url:
        assert run(tmp_path / "out", data, "--url", url, "--sampling", "eval@budget", "--budget", "12") == 0
    journal = EvaluationFolder(tmp_path / "out").journal()
    tokens = [journal.samples[key].answer.tokens for key in sorted(journal.samples)]
    assert tokens == [5, 5, 2] * 6


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], None),
        (["--thinking", "on"], {"enable_thinking": True}),
        (["--thinking", "off"], {"enable_thinking": False}),
    ],
)
@pytest.mark.parametrize("command", [recipe.evaluate.main, recipe.probe.main])
def test_the_chat_template_gets_the_thinking_mode_which_is_part_of_the_evaluation(
    tmp_path, data, command, words, asked
):
    behaviour = Behaviour()
    with serving(behaviour) as url:
        arguments = ["--data", f"own={data}", "--out", str(tmp_path / "out"), "--url", url, "--limit", "1"]
        assert command([*arguments, *words]) == 0
        assert command([*arguments, "--thinking", "off"]) == (0 if words[1:] == ["off"] else 2)
    assert {json.dumps(request.get("chat_template_kwargs")) for request in behaviour.requests} == {json.dumps(asked)}


def test_a_template_that_knows_no_thinking_is_refused_before_vllm_starts(tmp_path, data, capsys):
    folder = make_model(tmp_path / "m")
    assert run(tmp_path / "out", data, "--model", str(folder), "--thinking", "off") == 2
    assert "has no enable_thinking; omit it" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_server_that_dies_loses_nothing_and_the_same_command_continues(tmp_path, data, capsys):
    out, program = tmp_path / "out", Path(__file__).with_name("openai_server.py")
    with subprocess.Popen([sys.executable, str(program), "4"], stdout=subprocess.PIPE, text=True) as mortal:
        assert mortal.stdout is not None
        url = mortal.stdout.readline().strip()
        assert run(out, data, "--url", url, "--concurrency", "1") == 1
    message = capsys.readouterr().err
    assert "all servers have failed" in message
    assert "resumes from there" in message
    assert len(EvaluationFolder(out).journal().samples) == 4
    with open(out / "samples.jsonl", "a") as file:
        file.write('{"dataset": "own", "id": "cut in the mid')
    behaviour = Behaviour()
    with serving(behaviour) as url:
        assert run(out, data, "--url", url) == 0
    assert {request["messages"][0]["content"] for request in behaviour.requests} == {"say 5", "say 6"}
    (found,) = EvaluationFolder(out).metrics.values()
    assert found["problems"] == 6


def test_the_others_do_the_work_of_a_server_that_fails(tmp_path, data, capsys):
    healthy = Behaviour()
    with serving(healthy) as good, serving(Behaviour(fail=True)) as bad:
        assert run(tmp_path / "out", data, "--url", bad, good) == 0
    assert len(healthy.requests) == 6
    assert f"{bad}/v1 was dropped" in capsys.readouterr().err


def test_a_server_of_another_model_is_refused(tmp_path, data, capsys):
    with serving(Behaviour(model="other")) as other, serving(Behaviour()) as url:
        assert run(tmp_path / "a", data, "--url", other, "--model", MODEL) == 1
        assert "serves other, but 'little-model' was requested" in capsys.readouterr().err
        assert run(tmp_path / "b", data, "--url", url, other) == 1
        assert "different models" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_a_server_that_is_exchanged_on_the_way_is_noticed(tmp_path, data, capsys):
    with serving(Behaviour(answers_as="other")) as url:
        assert run(tmp_path / "out", data, "--url", url) == 1
    assert "answers as 'other'" in capsys.readouterr().err
    assert EvaluationFolder(tmp_path / "out").journal().samples == {}


def test_an_address_without_the_protocol_is_told_apart_from_one_where_nothing_answers(tmp_path, data, capsys):
    with serving(Behaviour()) as url:
        assert run(tmp_path / "out", data, "--url", f"{url}/elsewhere") == 1
    assert "returns 404" in capsys.readouterr().err
    assert run(tmp_path / "out", data, "--url", url) == 1
    assert "is the server up?" in capsys.readouterr().err


def test_a_prompt_beyond_the_context_is_left_out_and_reported(tmp_path, capsys):
    write_task_rows(tmp_path / "own.parquet", [task(1), task(2, "a long way to say 2")])
    with serving(Behaviour()) as url:
        assert run(tmp_path / "out", tmp_path / "own.parquet", "--url", url) == 0
    (found,) = EvaluationFolder(tmp_path / "out").metrics.values()
    assert (found["problems"], found["prompt_too_long"]) == (1, 1)
    assert "1 samples do not fit into the context" in capsys.readouterr().err


def test_a_folder_continues_only_with_the_settings_that_it_began_with(tmp_path, data, capsys):
    with serving(Behaviour()) as url:
        assert run(tmp_path / "out", data, "--url", url) == 0
        assert run(tmp_path / "out", data, "--url", url, "--limit", "2") == 2
    assert "another limit (None there, 2 now)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--judge", "shap=binary"], "unknown setting 'shap'; valid ones: partial_credit"),
        (["--judge", "shape=round"], "unknown 'round'; valid ones: binary"),
        (["--sampling", "eval@budget"], "needs a budget"),
        (["--sampling", "eval@k", "--k", "4", "64"], "--k 64 needs as many --samples, not 16"),
        (["--temperature", "1"], "one greedy answer"),
        (["--model", "/nowhere/model"], "no such model folder"),
        ([], "name a model"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_starts(tmp_path, data, capsys, options, message):
    assert run(tmp_path / "out", data, *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_samples_that_could_not_be_judged_are_judged_when_the_evaluation_continues(tmp_path, data, monkeypatch):
    """The answers are kept; only the verifier runs again."""
    import rewards
    from rewards.verdict import Verdict

    working = rewards.compute_score

    async def broken(*arguments, **settings):
        return Verdict.not_judged().as_reward()

    behaviour = Behaviour()
    with serving(behaviour) as url:
        monkeypatch.setattr(rewards, "compute_score", broken)
        assert run(tmp_path / "out", data, "--url", url) == 0
        folder = EvaluationFolder(tmp_path / "out")
        assert [found["not_judged"] for found in folder.metrics.values()] == [6]
        monkeypatch.setattr(rewards, "compute_score", working)
        assert run(tmp_path / "out", data, "--url", url) == 0
    assert len(behaviour.requests) == 6
    assert [(found["problems"], found["not_judged"]) for found in folder.metrics.values()] == [(6, 0)]


def test_a_full_disk_stops_the_evaluation_and_what_was_judged_is_kept(tmp_path, data, monkeypatch, capsys):
    add = SampleJournal.add

    def full(journal, sample):
        if len(journal.samples) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        add(journal, sample)

    with serving(Behaviour()) as url:
        monkeypatch.setattr(SampleJournal, "add", full)
        assert run(tmp_path / "out", data, "--url", url) == 1
        assert "cannot be written: No space left on device" in capsys.readouterr().err
        monkeypatch.setattr(SampleJournal, "add", add)
        assert len(EvaluationFolder(tmp_path / "out").journal().samples) == 2
        assert run(tmp_path / "out", data, "--url", url) == 0


def test_a_model_that_vllm_cannot_load_ends_with_its_last_error(tmp_path, data, monkeypatch, capsys):
    """A stand-in for vLLM: a program that fails the same way."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ValueError: Model architectures [Novel] are not supported'\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert run(tmp_path / "out", data, "--model", str(make_model(tmp_path / "m"))) == 1
    message = capsys.readouterr().err
    assert "vLLM did not start: ValueError: Model architectures [Novel] are not supported" in message
    assert str(tmp_path / "out" / "vllm.log") in message


def test_rows_that_are_no_problems_are_refused_with_the_first_that_does_not_fit(tmp_path, capsys):
    rows = [{"messages": [{"role": "user", "content": "say 1"}, {"role": "assistant", "content": "1"}]}]
    pd.DataFrame(rows).to_parquet(tmp_path / "demonstrations.parquet")
    assert run(tmp_path / "out", tmp_path / "demonstrations.parquet", "--url", "http://127.0.0.1:1") == 2
    assert "row 0, field 'data_source'" in capsys.readouterr().err


def test_answers_that_were_cut_are_a_column_and_a_warning(tmp_path, data, capsys):
    with serving(Behaviour(finish="length")) as url:
        assert run(tmp_path / "out", data, "--url", url) == 0
    printed = capsys.readouterr()
    assert "warning: own: 100.0% of the answers were cut at the length limit" in printed.err
    assert "cut" in printed.out
    (found,) = EvaluationFolder(tmp_path / "out").metrics.values()
    assert found["cut_share"] == 1.0


def test_an_evaluation_does_not_continue_with_weights_that_were_replaced(tmp_path, data, monkeypatch, capsys):
    """The stand-in for vLLM names the model by its folder, like the real one."""
    folder = make_model(tmp_path / "m")

    started = []

    @contextlib.contextmanager
    def vllm(model, *_):
        started.append(model)
        with serving(Behaviour(model=model, answers_as=model)) as url:
            yield [url]

    monkeypatch.setattr(recipe.evaluate, "vllm_servers", vllm)
    assert run(tmp_path / "out", data, "--model", str(folder)) == 0
    assert run(tmp_path / "out", data, "--model", str(folder)) == 0
    (folder / "model.safetensors").write_bytes(b"replaced")
    kept = (tmp_path / "out/samples.jsonl").read_bytes()
    assert run(tmp_path / "out", data, "--model", str(folder)) == 2
    assert "holds an evaluation with another weights (" in capsys.readouterr().err
    assert len(started) == 2  # refused before the minutes-long start of a server
    assert (tmp_path / "out/samples.jsonl").read_bytes() == kept


AMX = "flags\t\t: fpu amx_bf16\n"


@pytest.mark.parametrize(
    ("flags", "words", "dtype"),
    [
        (AMX, [], ["--dtype", "bfloat16"]),
        ("flags\t\t: fpu avx2\n", [], ["--dtype", "float32"]),
        (AMX, ["--experiment", "pretrained"], ["--dtype", "bfloat16"]),
        (AMX, ["--experiment", "quickstart"], ["--dtype", "float32"]),  # its run.precision
        (AMX, ["--experiment", "quickstart", "--precision", "bfloat16"], ["--dtype", "bfloat16"]),
        (AMX, ["--precision", "float32"], ["--dtype", "float32"]),
        (AMX, ["--platform", "gpu"], []),
        # vLLM's own option, which comes last, wins.
        (AMX, ["--vllm", "--dtype float16"], ["--dtype", "bfloat16", "--dtype", "float16"]),
    ],
)
@pytest.mark.parametrize("command", [recipe.evaluate.main, recipe.probe.main])
def test_vllm_multiplies_in_the_precision_of_training(
    tmp_path, data, monkeypatch, capsys, command, flags, words, dtype
):
    (tmp_path / "cpuinfo").write_text(flags)
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    started = []

    def start(command, **options):
        started.append((command, options["env"]))
        raise OSError("started")

    monkeypatch.setattr(subprocess, "Popen", start)
    folder = make_model(tmp_path / "m")
    arguments = ["--model", str(folder), "--data", str(data), "--out", str(tmp_path / "out"), *words]
    assert command(arguments) == 1, capsys.readouterr().err
    ((words_of_vllm, environment),) = started
    places = [place for place, word in enumerate(words_of_vllm) if word == "--dtype"]
    assert [word for place in places for word in words_of_vllm[place : place + 2]] == dtype
    # Its scheduler waits while the worker computes: no core is for it alone.
    assert (environment.get("VLLM_CPU_NUM_OF_RESERVED_CPU") == "0") == ("gpu" not in words)


@pytest.mark.parametrize(
    ("flags", "words", "said"),
    [
        ("flags\t\t: fpu avx2\n", ["--precision", "bfloat16"], "warning: --precision=bfloat16, but this processor has"),
        ("flags\t\t: fpu avx2\n", [], "precision: float32 (--precision), because this processor has neither AMX nor"),
        (AMX, [], "precision: bfloat16 (--precision)"),
    ],
)
def test_the_precision_on_a_cpu_is_said(tmp_path, data, monkeypatch, capsys, flags, words, said):
    (tmp_path / "cpuinfo").write_text(flags)
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")

    def start(*_, **__):
        raise OSError("started")

    monkeypatch.setattr(subprocess, "Popen", start)
    run(tmp_path / "out", data, "--model", str(make_model(tmp_path / "m")), *words)
    assert said in capsys.readouterr().err


def test_an_evaluation_does_not_resume_in_another_precision(tmp_path, data, monkeypatch, capsys):
    folder = make_model(tmp_path / "m")

    @contextlib.contextmanager
    def vllm(model, *_):
        with serving(Behaviour(model=model, answers_as=model)) as url:
            yield [url]

    monkeypatch.setattr(recipe.evaluate, "vllm_servers", vllm)
    assert run(tmp_path / "out", data, "--model", str(folder), "--precision", "float32") == 0
    assert EvaluationFolder(tmp_path / "out").run_info["settings"]["precision"] == "float32"
    assert run(tmp_path / "out", data, "--model", str(folder), "--precision", "bfloat16") == 2
    assert "another precision (float32 there, bfloat16 now)" in capsys.readouterr().err
