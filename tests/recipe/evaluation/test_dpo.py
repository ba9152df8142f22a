"""`recipe.dpo` without TRL's training."""

import json

import huggingface_hub.constants
import pytest

import recipe.dpo
from recipe.dpo import DpoError, _arguments, command, main, prepare, reward_accuracy, write_pairs
from recipe.evaluation.verified import pairs
from scripts.check_pins import PROJECT, contradictions, read_metadata, read_pins
from tests.models import make_cached, make_model
from tests.recipe.evaluation.conftest import task
from tests.recipe.evaluation.test_verified import evaluation, sample, solved


def offered(count: int):
    return solved(*[[sample(f"p{n}", 0, f"good {n}", 1.0), sample(f"p{n}", 1, "bad", 0.0)] for n in range(count)])


def test_pairs_are_written_as_chats_and_no_problem_is_on_both_sides(tmp_path):
    files = write_pairs(pairs(offered(40), min_margin=0.5, per_problem=2), tmp_path)
    lines = {split: [json.loads(line) for line in path.read_text().splitlines()] for split, path in files.items()}
    texts = {split: {line["chosen"][0]["content"] for line in found} for split, found in lines.items()}
    assert len(texts["train"]) + len(texts["val"]) == 40
    assert not texts["train"] & texts["val"]
    assert lines["val"][0]["rejected"] == [{"role": "assistant", "content": "bad"}]
    assert set(lines["val"][0]) == {"prompt", "chosen", "rejected"}


def test_too_few_pairs_are_refused(tmp_path):
    with pytest.raises(DpoError, match="0 pairs are too few"):
        write_pairs(pairs(solved([sample("p", 0, "x", 1.0)]), min_margin=0.5, per_problem=2), tmp_path)


def test_the_reward_accuracy_is_that_of_the_last_evaluation():
    assert reward_accuracy([{"eval_rewards/accuracies": 0.4}, {"loss": 0.7}, {"eval_rewards/accuracies": 0.9}]) == 0.9


def arguments(tmp_path, evaluation_folder) -> list[str]:
    return ["--model", str(tmp_path / "m"), "--evaluations", str(evaluation_folder), "--out", str(tmp_path / "out")]


def test_without_its_environment_it_says_how_to_make_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recipe.dpo, "PYTHON", tmp_path / "bin" / "python")
    assert main(arguments(tmp_path, tmp_path)) == 2
    assert "create it with bash scripts/setup.sh dpo" in capsys.readouterr().err


def test_an_evaluation_that_is_not_there_and_a_model_that_is_none_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recipe.dpo, "PYTHON", tmp_path)
    assert main(arguments(tmp_path, tmp_path)) == 2
    assert "no such model folder" in capsys.readouterr().err
    make_model(tmp_path / "m")
    assert main(arguments(tmp_path, tmp_path)) == 2
    assert "holds no finished evaluation" in capsys.readouterr().err
    reserved = evaluation(tmp_path, [task(1, role="test")], [sample("own/1", 0, "x", 1.0)])
    assert main(arguments(tmp_path, reserved.path)) == 2
    assert "may not be trained on" in capsys.readouterr().err


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.slow
def test_the_packages_that_trl_uses_are_pinned_as_it_needs_them(platform):
    file, own = PROJECT / "requirements" / f"{platform}.txt", PROJECT / "requirements" / "dpo.txt"
    needed = read_metadata(own)["trl"]
    pins, metadata = read_pins(file) | read_pins(own), read_metadata(file) | {"trl": needed}
    assert len(needed.requires) > 5
    assert [problem for problem in contradictions(pins, metadata, [], file.stem) if problem.startswith("trl")] == []
    assert "trl" not in read_pins(file)


@pytest.fixture
def sampled(tmp_path, monkeypatch):
    """An evaluation with a right and a wrong answer to each of 40 problems, and the arguments that train on it."""
    monkeypatch.setattr(recipe.dpo, "PYTHON", tmp_path)
    make_model(tmp_path / "m")
    tasks = [task(number, role="train") for number in range(40)]
    texts = [sample(one.id, n, f"x = {n}", float(n)) for one in tasks for n in (0, 1)]
    return arguments(tmp_path, evaluation(tmp_path, tasks, texts).path)


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_every_gpu_has_a_process_and_an_optimiser_step_32_pairs(sampled, tmp_path, monkeypatch, ranks):
    monkeypatch.setattr(recipe.dpo, "gpus", lambda: ranks)
    settings, _ = prepare(_arguments([*sampled, "--platform", "gpu"]))
    assert settings.ranks * settings.micro_batch_size * settings.accumulated == settings.batch_size == 32
    words = command(settings, tmp_path / "settings.json")
    assert words[1:5] == ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    assert words[5:] == ["-m", "recipe.training.preference", str(tmp_path / "settings.json")]


def test_on_a_cpu_there_is_one_process(sampled, tmp_path):
    settings, _ = prepare(_arguments(sampled))
    assert (settings.ranks, settings.accumulated) == (1, 8)
    assert command(settings, tmp_path / "s.json")[1:3] == ["-m", "recipe.training.preference"]


def test_a_batch_that_the_processes_cannot_share_is_refused(sampled, monkeypatch, capsys):
    monkeypatch.setattr(recipe.dpo, "gpus", lambda: 8)
    assert main([*sampled, "--platform", "gpu", "--batch-size", "48"]) == 2
    assert "--batch-size 48 is not a multiple of 8 processes x --micro-batch-size 4" in capsys.readouterr().err


@pytest.mark.slow
def test_preference_training_takes_a_hub_name(sampled, tmp_path, monkeypatch):
    folder = make_cached(tmp_path / "hub", "owner/model")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    sampled[sampled.index("--model") + 1] = "owner/model"
    settings, _ = prepare(_arguments(sampled))
    assert settings.model == str(folder)


def test_an_output_folder_of_another_model_is_refused(sampled, tmp_path, capsys):
    prepare(_arguments(sampled))
    (tmp_path / "m" / "model.safetensors").write_bytes(b"other weights")
    assert main(sampled) == 2
    assert "out was made with another model 'start'" in capsys.readouterr().err
