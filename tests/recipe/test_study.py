"""A folder of results records its settings, and refuses others."""

import json

import pytest

from recipe.checks.model import ModelError, model_folder
from recipe.studies.manifest import VERSION, StudyError, claim, read
from tests.models import make_cached, make_model


@pytest.fixture
def inputs(tmp_path) -> dict:
    make_model(tmp_path / "m")
    (tmp_path / "train.parquet").write_bytes(b"rows")
    (tmp_path / "e.yaml").write_text("a: 1  # a comment\n")
    return {
        "models": {"start": str(tmp_path / "m")},
        "data": {"train": tmp_path / "train.parquet", "experiment": tmp_path / "e.yaml"},
        "settings": {"train": "lr=1"},
    }


def test_the_same_inputs_are_accepted_again_from_another_place_too(tmp_path, inputs):
    claim(tmp_path / "out", **inputs)
    before = (tmp_path / "out/study.json").read_bytes()
    (tmp_path / "m").rename(tmp_path / "moved")
    (tmp_path / "e.yaml").write_text("# the same content\na: 1\n")
    claim(tmp_path / "out", **inputs | {"models": {"start": str(tmp_path / "moved")}})
    assert {kind: sorted(found) for kind, found in read(tmp_path / "out").items()} == {
        "model": ["start"], "data": ["experiment", "train"], "setting": ["train"],
    }  # fmt: skip
    assert json.loads(before)["model"]["start"]["digest"] == read(tmp_path / "out")["model"]["start"]["digest"]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("m/model.safetensors", b"two", "made with another model 'start': "),
        ("train.parquet", b"other rows", "made with another data 'train': "),
        ("e.yaml", b"a: 2\n", "made with another data 'experiment': "),
    ],
)
def test_another_model_or_file_is_refused_and_nothing_changes(tmp_path, inputs, file, content, message):
    claim(tmp_path / "out", **inputs)
    kept = (tmp_path / "out/study.json").read_bytes()
    (tmp_path / file).write_bytes(content)
    with pytest.raises(StudyError, match=message) as raised:
        claim(
            tmp_path / "out",
            **inputs,
        )
    assert len(str(raised.value).splitlines()) == 1
    assert (tmp_path / "out/study.json").read_bytes() == kept


def test_another_setting_is_refused_with_both_values(tmp_path, inputs):
    claim(tmp_path / "out", **inputs)
    with pytest.raises(StudyError, match="another setting 'train': recorded 'lr=1', now 'lr=2'"):
        claim(tmp_path / "out", settings={"train": "lr=2"})


def test_what_is_new_is_added_and_a_refusal_adds_nothing(tmp_path, inputs):
    claim(tmp_path / "out", settings={"train": "lr=1"})
    claim(tmp_path / "out", settings={"evaluate": "a"})
    with pytest.raises(StudyError):
        claim(tmp_path / "out", settings={"evaluate": "b", "third": "c"})
    assert {name: entry["digest"] for name, entry in read(tmp_path / "out")["setting"].items()} == {
        "train": "lr=1", "evaluate": "a",
    }  # fmt: skip


def test_the_blanks_of_a_setting_do_not_count(tmp_path):
    claim(tmp_path / "out", settings={"train": "a=1\n    b=2 "})
    claim(tmp_path / "out", settings={"train": "a=1 b=2"})
    with pytest.raises(StudyError, match="another setting 'train'"):
        claim(tmp_path / "out", settings={"train": "a=1 b=3"})


def test_a_record_names_its_version_one_without_it_is_read_and_a_later_one_is_refused(tmp_path):
    claim(tmp_path / "out", settings={"train": "lr=1"})
    path = tmp_path / "out/study.json"
    record = json.loads(path.read_text())
    assert record.pop("version") == VERSION
    path.write_text(json.dumps(record))
    assert read(path.parent)["setting"]["train"]["place"] == "lr=1"
    path.write_text(json.dumps(record | {"version": VERSION + 1}))
    with pytest.raises(StudyError, match=f"has version {VERSION + 1}; this release reads version"):
        claim(path.parent, settings={"train": "lr=1"})


def test_a_damaged_file_and_a_missing_one_are_refused_and_nothing_is_written(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(StudyError, match=f"^no such file: {tmp_path}/gone.parquet$"):
        claim(out, data={"train": tmp_path / "gone.parquet"})
    assert not out.exists()
    out.mkdir()
    (out / "study.json").write_text('{"model": ')
    with pytest.raises(StudyError, match=r"study\.json is damaged"):
        claim(out, settings={"a": "1"})
    assert (out / "study.json").read_text() == '{"model": '


@pytest.mark.parametrize("text", ["[]", "null", '{"model":[]}', '{"model":{"a":"x"}}', '{"model":{"a":{}}}', "\xff"])
def test_a_file_of_another_shape_is_damaged(tmp_path, text):
    (tmp_path / "study.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(StudyError, match=r"study\.json is damaged"):
        claim(tmp_path, settings={"a": "1"})


@pytest.mark.parametrize("text", ["a: [1", "1: a\nb: c", "a: \x00"])
def test_a_file_that_is_no_readable_yaml_is_named(tmp_path, text):
    (tmp_path / "e.yaml").write_text(text)
    with pytest.raises(StudyError, match=r"e\.yaml is not readable YAML"):
        claim(tmp_path / "out", data={"experiment": tmp_path / "e.yaml"})


def test_results_of_which_nothing_is_kept_are_taken_for_nobodys(tmp_path, inputs):
    out = tmp_path / "out"
    (out / "part").mkdir(parents=True)
    claim(out, **inputs)  # empty folders are not results
    (out / "metrics.json").write_text("{}")
    claim(out, **inputs)
    (out / "study.json").unlink()
    with pytest.raises(StudyError, match=r"out has metrics\.json but no study\.json .* made with; remove the folder"):
        claim(out, **inputs)
    assert not (out / "study.json").exists()


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "chat_template.jinja", "vocab.txt"])
def test_a_model_is_more_than_its_weights(tmp_path, inputs, file):
    claim(tmp_path / "out", **inputs)
    (tmp_path / "m" / "README.md").write_text("says nothing of it")
    claim(tmp_path / "out", **inputs)
    (tmp_path / "m" / file).write_text('{"other": 1}')
    with pytest.raises(StudyError, match="another model 'start'"):
        claim(tmp_path / "out", **inputs)


def test_a_hub_name_is_the_folder_of_its_snapshot(cache, tmp_path, capsys):
    folder = make_cached(cache, "owner/model")
    assert model_folder("owner/model") == folder
    claim(tmp_path / "out", models={"start": "owner/model"})
    make_cached(cache, "owner/model", b"newer", commit="beef")
    with pytest.raises(StudyError, match=r"another model 'start': recorded owner/model \(\w+\)"):
        claim(tmp_path / "out", models={"start": "owner/model"})


def test_a_folder_is_itself_once_it_is_complete(tmp_path):
    folder = make_model(tmp_path / "m")
    assert model_folder(str(folder)) == folder
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="no weights"):
        model_folder(str(folder))


@pytest.mark.parametrize("name", ["models/x.gguf", "/models/x.GGUF", "x.gguf"])
def test_a_gguf_file_is_not_a_hub_name(name):
    wanted = f"{name} is a GGUF file, not a model folder; first make a folder: python -m data_prep.pretrained --source"
    with pytest.raises(ModelError, match=wanted):
        model_folder(name)


@pytest.mark.parametrize("name", ["nowhere", "/no/folder", "./m", "a/b/c"])
def test_a_name_of_neither_kind_is_refused(name):
    with pytest.raises(ModelError, match="no such model folder"):
        model_folder(name)


def test_a_hub_out_of_reach_names_the_other_way(cache):
    with pytest.raises(ModelError, match=r"could not be loaded from the Hugging Face hub .* download it elsewhere"):
        model_folder("owner/unknown")
