"""`recipe.export` without verl's merger, which runs in tests/e2e."""

import errno
import shutil
import subprocess
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

import recipe.export
from data_prep.micro.model import make
from data_prep.schema import DataFileError
from recipe.evaluation import ServerError, same_model
from recipe.evaluation.exported import checkpoint, merge_adapter
from recipe.export import compare, main, validation_prompts
from recipe.records.run_directory import RunDirectory
from tests.recipe.evaluation.openai_server import Behaviour, serving

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    run = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    (run.path / "config.yaml").write_text("data: {}\n")
    for step in (7, 14):
        (run.checkpoints / f"global_step_{step}" / "actor").mkdir(parents=True)
    (run.checkpoints / "latest_checkpointed_iteration.txt").write_text("14")
    return run


def test_the_last_checkpoint_is_taken_where_no_step_is_named(run):
    assert checkpoint(run, None).parent.name == "global_step_14"
    assert checkpoint(run, 7).parent.name == "global_step_7"


def test_a_step_that_is_not_there_is_refused_with_those_that_are(run, capsys):
    assert main([str(run.path), "--step", "8"]) == 2
    assert "no checkpoint of step 8; available steps: 7, 14" in capsys.readouterr().err


def test_a_run_without_checkpoints_says_what_writes_them(run, capsys):
    shutil.rmtree(run.checkpoints)
    run.checkpoints.mkdir()
    assert main([str(run.path)]) == 2
    assert "has no checkpoint; a run writes them with trainer.save_freq" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "is not a run directory" in capsys.readouterr().err


def test_a_run_of_a_later_release_is_refused_by_its_version(run, capsys):
    (run.path / "config.yaml").write_text("records_version: 99\ndata: {}\n")
    assert main([str(run.path)]) == 2
    assert "has version 99 of the records" in capsys.readouterr().err


def test_a_model_that_is_there_is_never_overwritten(run, capsys):
    (run.path / "export" / "global_step_14").mkdir(parents=True)
    assert main([str(run.path)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_full_disk_leaves_no_half_model_and_the_checkpoint_as_it_was(run, monkeypatch, capsys):
    def merger(command, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(subprocess, "run", merger)
    monkeypatch.setattr(recipe.export, "validation_prompts", lambda config, count: [])
    (run.path / "config.yaml").write_text("actor_rollout_ref: {model: {path: m}}\n")
    assert main([str(run.path)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert list((run.path / "export").iterdir()) == []
    assert checkpoint(run, None).is_dir()


def test_a_model_that_failed_its_comparison_is_not_taken_for_one_that_passed(run, monkeypatch, capsys):
    (run.path / "config.yaml").write_text("actor_rollout_ref: {model: {path: m}}\n")
    out, compared = run.path / "model", []

    def compare(folder, *given):
        compared.append((folder.read_text(), out.exists()))
        if len(compared) == 1:
            raise ServerError("they differ")

    monkeypatch.setattr(recipe.export, "validation_prompts", lambda config, count: PROMPTS)
    monkeypatch.setattr(recipe.export, "merge", lambda actor, base, folder: folder.write_text(f"try {len(compared)}"))
    monkeypatch.setattr(recipe.export, "compare", compare)
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: path.unlink(missing_ok=True))
    assert (main([str(run.path), "--out", str(out)]), out.exists()) == (1, False)
    assert "they differ" in capsys.readouterr().err
    assert main([str(run.path), "--out", str(out)]) == 0
    assert compared == [("try 0", False), ("try 1", False)]
    assert (out.read_text(), out.with_name("model.unchecked").exists()) == ("try 1", False)


def test_the_merged_model_computes_what_the_base_with_its_adapter_computes(tmp_path):
    make(tmp_path / "base", hidden=32, layers=1, heads=1)
    adapted = get_peft_model(
        AutoModelForCausalLM.from_pretrained(tmp_path / "base"),
        LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False),
    )
    adapted.save_pretrained(tmp_path / "adapter")
    out = merge_adapter(str(tmp_path / "base"), tmp_path / "adapter", tmp_path / "out")
    tokens = torch.tensor([[5, 9, 2, 40]])
    with torch.no_grad():
        logits, base = (AutoModelForCausalLM.from_pretrained(path)(tokens).logits for path in (out, tmp_path / "base"))
        torch.testing.assert_close(logits, adapted(tokens).logits)
    assert (logits - base).abs().max() > 1e-3
    assert (out / "tokenizer.json").exists()


PROMPTS = [[{"role": "user", "content": "trace g"}], [{"role": "user", "content": "write f"}]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model with random weights, two of whose tokens are nearly as probable everywhere, and its greedy answers."""
    folder = tmp_path_factory.mktemp("m") / "model"
    make(folder, hidden=32, layers=1, heads=1)
    asked = same_model.prepared(folder, PROMPTS, 6)
    network: Any = AutoModelForCausalLM.from_pretrained(folder)
    first = next(answer.tokens[0] for answer in same_model.of_transformers(folder, asked))
    with torch.no_grad():
        rows = network.get_output_embeddings().weight
        rows[first + 1] = rows[first] * (1 - 1e-4)
    network.save_pretrained(folder)
    answers = list(same_model.of_transformers(folder, asked))
    assert answers[0].tokens[0] == first
    return folder, answers


def compared(monkeypatch, model, changed: Callable[[list[int]], list[int]]) -> list[dict[str, Any]]:
    """Compare while vLLM, here a server of its protocol, answers the first prompt with changed tokens."""
    folder, answers = model
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    tokens = {PROMPTS[0][0]["content"]: changed(answers[0].tokens), PROMPTS[1][0]["content"]: answers[1].tokens}
    behaviour = Behaviour(
        model=str(folder), answers_as=str(folder), tokens=lambda messages: tokens[messages[-1]["content"]]
    )
    behaviour.text = lambda messages: tokenizer.decode(tokens[messages[-1]["content"]], skip_special_tokens=True)
    started: list[dict[str, Any]] = []

    @contextmanager
    def vllm(model, platform, log, options, precision, most):
        started.append({"options": options, "precision": precision, "most": most})
        log.touch()
        with serving(behaviour) as url:
            yield [url]

    monkeypatch.setattr(same_model, "vllm_servers", vllm)
    compare(folder, PROMPTS, 6, "cpu", ["--dtype", "x"])
    return started


def test_equal_texts_are_counted_and_vllm_gets_no_more_context_than_they_need(monkeypatch, model, capsys):
    (started,) = compared(monkeypatch, model, lambda tokens: tokens)
    longest = max(len(prompt.tokens) for prompt in same_model.prepared(model[0], PROMPTS, 6)) + 6
    assert started == {"options": ["--max-model-len", str(longest), "--dtype", "x"], "precision": "float32", "most": 1}
    assert capsys.readouterr().out == "vLLM and transformers give the same greedy text for 2 validation prompts\n"


def test_a_near_tie_of_two_tokens_is_reported_and_no_error(monkeypatch, model, capsys):
    compared(monkeypatch, model, lambda tokens: [tokens[0] + 1, *tokens[1:]])
    printed = capsys.readouterr().out
    assert "the same greedy text for 1 of 2 validation prompts" in printed
    assert "a near tie, no error: prompt 0: transformers " in printed


def test_a_token_that_is_far_less_probable_means_that_the_models_differ(monkeypatch, model):
    worst = int(model[1][0].log_probs[2].argmin())
    gap = float(model[1][0].log_probs[2].max() - model[1][0].log_probs[2].min())
    with pytest.raises(ServerError, match=rf"more than a near tie.*prompt 0: .* are {gap:.2g} nats apart"):
        compared(monkeypatch, model, lambda tokens: [*tokens[:2], worst, *tokens[3:]])


def test_an_answer_that_ends_early_is_no_near_tie(monkeypatch, model):
    with pytest.raises(ServerError, match="inf nats apart"):
        compared(monkeypatch, model, lambda tokens: tokens[:3])


def test_a_character_that_the_limit_cuts_is_no_difference():
    def of(ours: str, theirs: str):
        return same_model.difference(0, same_model.GreedyAnswer(ours, [1]), same_model.GreedyAnswer(theirs, [1]))

    assert of("ab\ufffd\ufffd", "ab") is None
    assert of("a\ufffdb", "ab") is not None


def test_validation_prompts_are_read_as_in_training_with_the_column_of_the_skills(tiny_suite, tmp_path):
    frame = pd.read_parquet(tiny_suite / "val.parquet")
    frame.assign(topic="first").to_parquet(tmp_path / "v.parquet")
    skills = {"by": "column", "column": "topic"}
    config = OmegaConf.create({"data": {"val_files": [str(tmp_path / "v.parquet")]}, "skills": skills})
    assert validation_prompts(config, 2) == [list(prompt) for prompt in frame["prompt"][:2]]
    config.skills.column = "skill"
    with pytest.raises(DataFileError, match="field 'topic'"):
        validation_prompts(config, 2)
