"""Launchers with stand-ins for training and evaluation: a study has one model, one data set, one response length."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from data_prep import made_from
from tests.models import make_cached, make_model
from tests.studying import ROOT, of_module, study, taken

pytestmark = pytest.mark.slow

# Each command writes its files and a line of $LOG.
INTERPRETER = """
import os, pathlib, sys
module, words = sys.argv[2], sys.argv[3:]
with open(os.environ["LOG"], "a") as log:
    log.write(" ".join([module, *words]) + "\\n")
if module == os.environ.get("FAILS"):
    sys.exit(1)
if words[:1] == ["choose"]:
    print(words[1])
out = pathlib.Path(words[words.index("--out") + 1]) if "--out" in words else None
def leave(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(os.environ.get("ROWS", module))
if module == "data_prep.micro.model":
    leave(out, "config.json", "tokenizer.json", "model.safetensors")
elif module.startswith("data_prep.micro.") or module == "data_prep.sources.agents":
    leave(out.parent, out.name)
elif module == "data_prep.micro":
    leave(out, "train.parquet", "val.parquet", "sft_train.parquet")
elif module.startswith("data_prep."):
    leave(out, *(split + ".parquet" for split in os.environ.get("SPLITS", "train dev test").split()))
elif module == "recipe.export":
    leave(out, "config.json", "tokenizer.json", "model.safetensors")
elif out:
    leave(out, "metrics.json", "probe.json")
elif module == "recipe.sft":
    folder = [word.partition("=")[2] for word in words if word.startswith("trainer.default_local_dir=")][0]
    leave(pathlib.Path(folder) / "global_step_128/huggingface", "config.json", "tokenizer.json", "model.safetensors")
"""

# Rows of two skills, and a start that has seen second turns.
SECOND_TURNS = ["data_prep.micro", "data_prep.micro.episodes", "data_prep.micro.episodes", "recipe.sft"]


@pytest.fixture
def project(tmp_path):
    """A folder with the launchers and configurations, a model `m`, and a stand-in for the interpreter."""
    for name in ("scripts", "configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    make_model(tmp_path / "m")
    (tmp_path / "python.py").write_text(INTERPRETER)
    # Without packages, and not the first python3 of the path, which may be a script that takes ten times as long.
    started = shlex.join([sys.executable, "-IS", f"{tmp_path}/python.py"])
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {started} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def launch(project: Path, *words: str, **variables: str) -> tuple[int, list[str], str]:
    """Exit status, executed commands, and output."""
    log = project / "log"
    log.write_text("")
    status, _, printed = study(*words, dry=False, folder=project, PYTHON=f"{project}/python", LOG=str(log), **variables)
    return status, log.read_text().splitlines(), printed


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(printed: str) -> str:
    (line,) = [line for line in printed.splitlines() if line.startswith("stopped: ")]
    return line


@pytest.fixture
def finished(project):
    """The project after a whole study of GSM8K."""
    status, commands, printed = launch(project, "task", "gsm8k", "m")
    assert status == 0, printed
    assert [command.split()[0] for command in commands] == [
        "data_prep.sources.gsm8k", "recipe.probe", "recipe.train", "recipe.export", "recipe.evaluate",
        "recipe.evaluate", "recipe.report",
    ]  # fmt: skip
    return project


def test_a_finished_study_is_not_done_again(finished):
    status, commands, printed = launch(finished, "task", "gsm8k", "m")
    assert status == 0, printed
    assert [command.split()[0] for command in commands] == ["recipe.report"]


@pytest.mark.parametrize(
    ("change", "words", "variables", "message"),
    [
        ("", "other", {}, "outputs/gsm8k was made with another model 'start': recorded m"),
        ("m/model.safetensors", "m", {}, "outputs/gsm8k was made with another model 'start': recorded m"),
        ("data/gsm8k/dev.parquet", "m", {}, "data/gsm8k/dev.parquet has changed since data_prep.sources.gsm8k made it"),
        ("outputs/gsm8k/study/model/model.safetensors", "m", {}, "gsm8k/trained was made with another model 'model': "),
        ("", "m", {"TRAIN": "data.seed=3"}, "outputs/gsm8k/study was made with another setting 'train': "),
        ("", "m", {"EVALUATE": "--limit 3"}, "outputs/gsm8k/base was made with another setting 'evaluate': "),
        ("", "m", {"LENGTH": "99"}, "outputs/gsm8k/probe was made with another setting 'probe': "),
        ("", "m", {"SOURCE": "arithmetic"}, "data/gsm8k was made with another setting 'made': "),
    ],
)  # fmt: skip
def test_a_study_of_something_else_is_refused_and_nothing_is_lost(finished, change, words, variables, message):
    make_model(finished / "other", b"two")
    if change:
        (finished / change).write_bytes(b"changed")
    kept = contents(finished / "outputs") | contents(finished / "data")
    status, commands, printed = launch(finished, "task", "gsm8k", words, **variables)
    assert (status, commands) == (2, [])
    assert message in refusal(printed)
    assert contents(finished / "outputs") | contents(finished / "data") == kept


def test_weights_that_are_replaced_between_two_steps_are_refused(project):
    status, commands, _ = launch(project, "task", "gsm8k", "m", FAILS="recipe.train")
    assert (status, commands[-1].split()[0]) == (1, "recipe.train")
    (project / "m/model.safetensors").write_bytes(b"replaced")
    status, commands, printed = launch(project, "task", "gsm8k", "m")
    assert (status, commands) == (2, [])
    assert "another model 'start'" in refusal(printed)


def test_data_without_a_split_are_refused_by_its_name(project):
    status, commands, printed = launch(project, "task", "gsm8k", "m", SPLITS="train test")
    assert (status, [command.split()[0] for command in commands]) == (2, ["data_prep.sources.gsm8k"])
    assert refusal(printed) == (
        "stopped: no data/gsm8k/dev.parquet; first remove data/gsm8k: its data lack the split dev"
    )


@pytest.mark.parametrize("change", ["start/model.safetensors", "d/train.parquet", "d/dev.parquet"])
def test_a_phase_of_the_coding_pipeline_refuses_what_changed_since_the_phase_before(project, change):
    make_model(project / "start")
    (project / "d").mkdir()
    for split in ("train", "dev"):
        (project / "d" / f"{split}.parquet").write_text("rows")
    status, _, printed = launch(project, "coding.phase0_baseline", "start", DATA="d", OUT="o")
    assert status == 0, printed
    assert launch(project, "coding.phase1_sft", DATA="d", OUT="o", FAILS="recipe.sft")[0] == 1
    (project / change).write_bytes(b"changed")
    status, commands, printed = launch(project, "coding.phase1_sft", DATA="d", OUT="o")
    assert (status, commands) == (2, [])
    assert "stopped: o was made with another " in refusal(printed)


def test_the_coding_pipeline_does_not_continue_with_another_model(project):
    (project / "d").mkdir()
    for split in ("train", "dev"):
        (project / "d" / f"{split}.parquet").write_text("rows")
    assert launch(project, "coding.phase0_baseline", "m", DATA="d", OUT="o")[0] == 0
    make_model(project / "other", b"two")
    status, commands, printed = launch(project, "coding.phase0_baseline", "other", DATA="d", OUT="o")
    assert (status, commands) == (2, [])
    assert "o was made with another model 'start'" in refusal(printed)
    assert (project / "o/phase0/model").resolve() == project / "m"


def test_the_runs_of_npg_muse_share_weights_and_rows(project):
    words = ("npg_muse.mixed", "m", "binary", "7500")
    status, commands, printed = launch(project, *words)
    assert status == 0, printed
    assert launch(project, *words)[1] == []  # everything existed
    (project / "data/npg_muse/7500/level3/train.parquet").write_text("other rows")
    status, commands, printed = launch(project, "npg_muse.curriculum", "m", "binary", "7500")
    assert (status, commands) == (2, [])
    assert "data/npg_muse/7500/level3/train.parquet has changed since data_prep.graphs made it" in refusal(printed)


@pytest.mark.parametrize(
    ("words", "makers"),
    [
        (["task", "gsm8k", "m"], ["data_prep.sources.gsm8k"]),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (["npg_muse.mixed", "m", "binary", "7500"], ["data_prep.graphs"] * 5),
                (["npg_muse.smoke"], ["data_prep.micro.model", *["data_prep.graphs"] * 5]),
                (["coding.phase4_repair"], ["data_prep.sources.agents"] * 2),
                (["coding.micro"], [*SECOND_TURNS, *["data_prep.sources.agents"] * 2]),
                (["evidence_credit", "agents"], SECOND_TURNS),
            )
        ),
    ],
    ids=lambda words: words[0],
)
def test_data_are_regenerated_when_a_module_that_makes_them_changes(project, monkeypatch, words, makers):
    """One file stands for all modules; tests/data_prep/test_made_from.py shows that verifiers are among them."""
    verifier = project / "verifier.py"
    verifier.write_text("limit = 1")
    monkeypatch.setattr(made_from, "sources", lambda modules: [verifier])
    (project / "bin").mkdir()
    # scripts/setup.sh and scripts/micro_start.sh do nothing.
    (project / "bin/bash").write_text('#!/bin/sh\ncase "$1" in scripts/*) ;; *) exec /bin/bash "$@" ;; esac\n')
    (project / "bin/bash").chmod(0o755)
    for start in ("data/micro/model", "o/phase0/model", "o/phase3/model"):
        make_model(project / start)
    (project / "d").mkdir()
    for split in ("train", "dev"):
        (project / f"d/{split}.parquet").write_text("rows")
    places = {"OUT": "o", "DATA": "d", "AGENTS": "micro"} if words[0] == "coding.phase4_repair" else {}

    def made(**variables: str) -> tuple[int, list[str], str]:
        path = f"{project}/bin:{os.environ['PATH']}"
        status, commands, printed = launch(project, *words, PATH=path, **places, **variables)
        names = [one.split()[0] for one in commands if one.startswith("data_prep.") or "sft_experiment=micro" in one]
        return status, names, printed

    status, names, printed = made()
    assert (status, names) == (0, makers), printed
    assert made()[:2] == (0, [])
    verifier.write_text("limit = 2")
    assert made()[:2] == (0, makers)  # the same rows: the results stay valid
    if words[0] in ("task", "npg_muse.mixed", "coding.phase4_repair"):
        verifier.write_text("limit = 3")
        status, again, printed = made(ROWS="other")
        assert (status, again) == (2, makers)
        assert "was made with another data '" in printed


def test_other_tasks_are_other_data(project):
    assert launch(project, "npg_muse.evaluate", "m", "o", WHAT="in_task")[0] == 0
    status, _, printed = launch(project, "npg_muse.evaluate", "m", "o2", WHAT="in_task", TASKS="mcp")
    assert status == 2
    assert "data/npg_muse/in_task was made with another setting 'made'" in refusal(printed)


def test_two_models_with_the_same_last_name_have_runs_of_their_own():
    names = []
    for model in ("a/models/x", "b/models/x", "a/x", "a_x"):
        _, commands, _ = study("npg_muse.mixed", model, "binary", "750")
        names += re.findall(r"run.name=(\S+)", " ".join(of_module(commands, "recipe.train")))
    assert len(set(names)) == 4
    assert all(re.fullmatch(r"mixed_\w*x_[0-9a-f]{6}_binary_750", name) for name in names)


@pytest.mark.parametrize(
    ("launcher", "module"),
    [
        ("task gsm8k MODEL", "recipe.train"),
        ("task countdown MODEL", "recipe.probe"),
        ("npg_muse.mixed MODEL binary 7500", "recipe.train"),
        ("npg_muse.train_all_series mixed binary 7500 MODEL", "recipe.train"),
        ("npg_muse.evaluate MODEL out", "recipe.evaluate"),
    ],
)
def test_a_hub_name_works_as_a_folder_does(project, cache, launcher, module):
    folder = make_cached(cache, "owner/model")
    words = launcher.replace("MODEL", "owner/model").split()
    status, commands, printed = launch(project, *words, **taken(words[0], WHAT="in_task"))
    assert status == 0, printed
    assert str(folder) in of_module(commands, module)[0]
    unknown = [word.replace("owner/model", "owner/unknown") for word in words]
    status, commands, printed = launch(project, *unknown, **taken(words[0], WHAT="in_task"))
    assert status != 0
    assert "owner/unknown is not a local folder and could not be loaded from the Hugging Face hub" in printed
    assert not of_module(commands, module)


def test_the_coding_pipeline_begins_with_a_hub_name(project, cache):
    folder = make_cached(cache, "owner/model")
    (project / "d").mkdir()
    for split in ("train", "dev"):
        (project / "d" / f"{split}.parquet").write_text("rows")
    status, _, printed = launch(project, "coding.phase0_baseline", "owner/model", DATA="d", OUT="o")
    assert status == 0, printed
    assert (project / "o/phase0/model").resolve() == folder


@pytest.mark.parametrize(
    ("launcher", "length", "variables"),
    [
        ("task gsm8k m", "1024", {}),
        ("task countdown m", "1024", {}),
        ("task countdown m", "77", {"LENGTH": "77"}),
        ("npg_muse.mixed m binary 45000", "8192", {}),
        ("npg_muse.curriculum m binary 45000", "8192", {}),
        ("npg_muse.evaluate m out", "8192", {"WHAT": "in_task cross_task"}),
        ("coding.phase3_grpo", "2048", {}),
        ("coding.micro", "64", {}),
        ("smoke", "48", {}),
        ("npg_muse.smoke", "32", {}),
    ],
)
def test_training_probe_and_evaluations_have_the_answer_length_of_the_study(tmp_path, launcher, length, variables):
    place = taken(launcher.split()[0], OUT=f"{tmp_path}/o", NAME="dry", FOLDER="dry")
    if launcher == "smoke":
        del place["FOLDER"]
    status, commands, printed = study(*launcher.split(), **place | variables)
    assert status == 0, printed
    trained = [re.findall(r"max_response_length=(\d+)", one) for one in of_module(commands, "recipe.train")]
    trained = [found for found in trained if len(found) == 1]  # not the episodes of phase 4
    asked = [
        re.findall(r"--max-tokens (\d+)", one)
        for module in ("recipe.evaluate", "recipe.probe")
        for one in of_module(commands, module)
    ]
    assert asked
    assert {tuple(found) for found in trained + asked} == {(length,)}


def test_an_episode_of_repair_has_room_for_as_many_turns(tmp_path):
    _, commands, _ = study("coding.phase4_repair", OUT=f"{tmp_path}/o", DATA="d", LENGTH="100")
    (train,) = of_module(commands, "recipe.train")
    assert re.findall(r"max_response_length=(\d+)", train) == ["100", "300"]  # the last override wins
    assert all("--max-tokens 100 " in f"{one} " for one in of_module(commands, "recipe.evaluate"))


def test_sets_of_other_domains_are_answered_at_the_length_of_the_study():
    _, commands, _ = study("npg_muse.cross_domain", "m", "out", SETS="gsm8k")
    assert ["--gen_kwargs max_gen_toks=8192" in one for one in commands if "lm_eval run" in one] == [True]


@pytest.mark.parametrize(
    "variables",
    [
        {"TRAIN": "data.max_response_length=9"},
        {"EVALUATE": "--limit 3 --max-tokens 9"},
        {"PROBE": "--max-tokens=9"},
    ],
)
@pytest.mark.parametrize("launcher", ["task gsm8k m", "npg_muse.mixed m binary 750", "coding.phase3_grpo"])
def test_a_second_answer_length_is_refused(launcher, variables):
    status, commands, printed = study(*launcher.split(), **variables)
    assert (status, commands) == (2, [])
    assert "the answer length is stated once, for training and evaluations: LENGTH=TOKENS" in refusal(printed)


@pytest.mark.parametrize("task", ["countdown", "gsm8k"])
def test_a_study_validates_on_held_out_training_rows_and_tests_at_the_end(task):
    _, commands, _ = study("task", task, "m", NAME="dry", FOLDER=f"{task}_dry")
    (train,) = of_module(commands, "recipe.train")
    assert f"data.val_files=data/{task}_dry/dev.parquet" in train
    uses = [
        command.split()[0] for command in commands if "test.parquet" in command and not command.startswith("claim ")
    ]
    assert uses == ["recipe.evaluate", "recipe.evaluate"]
    assert all(one.endswith(" --entropy") for one in of_module(commands, "recipe.evaluate"))
    steps = [command.split()[0] for command in commands if not command.startswith("claim ")]
    assert steps.index("recipe.evaluate") > steps.index("recipe.train")
    assert f"val_files: data/{task}/dev.parquet" in (ROOT / f"configs/experiment/{task}.yaml").read_text()
