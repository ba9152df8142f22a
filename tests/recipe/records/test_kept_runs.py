"""The file of a study's runs: it keeps all of a run, and other files are refused."""

import json
import lzma
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.records import kept_runs
from recipe.records.kept_runs import KeptRun
from recipe.records.versions import VERSION, RecordsError

START = {"time": 1.5, "event": "start", "weights": "aa"}


def run(name: str, config: dict, version: int = VERSION) -> KeptRun:
    rows = [{"step": 0, "time": 2.0, "skill/mean/accuracy": 1 / 3}, {"step": 1, "time": 3.0, "actor/kl": float("inf")}]
    return KeptRun(Path(name), version, config, [START], rows, f"# {name}\n\nüber alles\n")


def lines(path: Path) -> list[dict]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_a_gzipped_file_of_earlier_releases_is_read_and_added_to(tmp_path: Path):
    earlier, later = tmp_path / "runs.jsonl.gz", tmp_path / "runs.jsonl.xz"
    for path in (earlier, later):
        kept_runs.write(path, [run("a", {"x": 1}), run("b", {"x": 2})])
    assert earlier.read_bytes()[:2] == b"\x1f\x8b"
    assert [one.config for one in kept_runs.read(earlier)] == [one.config for one in kept_runs.read(later)]
    assert kept_runs.is_file(earlier)
    assert kept_runs.is_file(later)
    assert not kept_runs.is_file(tmp_path)


def test_what_is_written_is_read_again(tmp_path: Path):
    shared = {"data": {"seed": 0, "n": 2}, "kept": [1, None], "empty": {}}
    configs = [shared, shared | {"data": {"seed": 1, "n": 2}}, shared | {"data": {"seed": 1.0}, "own": {"a": {}}}]
    runs = [run(name, config, version) for name, config, version in zip("cab", configs, (2, 1, 2), strict=True)]
    kept_runs.write(tmp_path / "runs.jsonl.xz", runs)
    found = kept_runs.read(tmp_path / "runs.jsonl.xz")
    assert [one.path.name for one in found] == ["a", "b", "c"]
    for one, two in zip(found, (runs[1], runs[2], runs[0]), strict=True):
        assert json.dumps(one.config, sort_keys=True) == json.dumps(two.config, sort_keys=True)
        assert (one.version, one.events(), one.metrics(), one.report) == (
            two.version, two.events(), two.metrics(), two.report,
        )  # fmt: skip


def test_what_runs_share_is_written_once(tmp_path: Path):
    runs = [run(f"grpo.s{seed}", {"data": {"seed": seed, "n": 2}, "lr": 0.5}) for seed in (0, 1)]
    kept_runs.write(tmp_path / "runs.jsonl.xz", runs)
    head, *rest = lines(tmp_path / "runs.jsonl.xz")
    assert head == {"format": kept_runs.FORMAT, "version": VERSION, "settings": {"data": {"n": 2}, "lr": 0.5}}
    assert [line["settings"] for line in rest[:2]] == [{"data": {"seed": 0}}, {"data": {"seed": 1}}]
    assert {"metric": "actor/kl", "runs": [[None, float("inf")]] * 2} in rest[2:]


def test_earlier_files_have_the_metrics_of_a_run_in_its_line(tmp_path: Path):
    file, runs = tmp_path / "runs.jsonl.xz", [run("a", {"x": 1}), run("b", {"x": 2})]
    kept_runs.write(file, runs)
    head, *rest = lines(file)
    metrics = {line["metric"]: line["runs"] for line in rest[2:]}
    earlier = [line | {"metrics": {name: of[row] for name, of in metrics.items()}} for row, line in enumerate(rest[:2])]
    file.write_bytes(lzma.compress("\n".join(map(json.dumps, [head, *earlier])).encode()))
    assert [one.metrics() for one in kept_runs.read(file)] == [one.metrics() for one in runs]


def test_one_and_true_are_not_the_same_setting(tmp_path: Path):
    kept_runs.write(tmp_path / "runs.jsonl.xz", [run("a", {"key": 1}), run("b", {"key": True})])
    assert [repr(one.config["key"]) for one in kept_runs.read(tmp_path / "runs.jsonl.xz")] == ["1", "True"]


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(tmp_path: Path):
    one, two = run("a", {"x": 1, "y": 2}), run("b", {"y": 2, "x": 3})
    kept_runs.write(tmp_path / "one.jsonl.xz", [one, two])
    kept_runs.write(tmp_path / "two.jsonl.xz", [run("b", {"x": 3, "y": 2}), one])
    assert (tmp_path / "one.jsonl.xz").read_bytes() == (tmp_path / "two.jsonl.xz").read_bytes()
    kept_runs.write(tmp_path / "again.jsonl.xz", kept_runs.read(tmp_path / "one.jsonl.xz"))
    assert (tmp_path / "one.jsonl.xz").read_bytes() == (tmp_path / "again.jsonl.xz").read_bytes()


@pytest.mark.slow
def test_a_kept_run_is_read_in_the_terms_of_the_current_version(tmp_path: Path):
    kept_runs.write(tmp_path / "runs.jsonl.xz", [run("a", {"protocol": {"kind": "mixed"}}, version=1)])
    (found,) = kept_runs.read(tmp_path / "runs.jsonl.xz")
    added: dict[str, object] = {"every_skill": False, "val_n_of_others": None, "replay_from": "store"}
    added |= {"weights": "fixed", "weight_rate": 1.0, "weight_trade": 0.2}
    assert found.read_config() == OmegaConf.create({"protocol": {"kind": "mixed"} | added})
    unpacked = found.unpack(tmp_path / "study")
    assert unpacked.recorded_config() == found.recorded_config() == (OmegaConf.create(found.config), 1)
    assert unpacked.recorded_version() == found.recorded_version() == 1
    assert unpacked.read_config() == found.read_config()
    assert (unpacked.metrics(), unpacked.events()) == (found.metrics(), found.events())


def test_the_version_of_a_kept_run_needs_no_configuration(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(OmegaConf, "create")
    assert run("a", {"x": 1}, version=3).recorded_version() == 3


def packed(path: Path, *rows: object) -> Path:
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


HEAD = {"format": kept_runs.FORMAT, "version": VERSION, "settings": {}}
LINE = {"name": "a.s0", "version": VERSION + 1, "settings": {}, "events": [], "report": "", "metrics": {}}


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([HEAD | {"version": VERSION + 1}], rf"runs\.jsonl\.xz has version {VERSION + 1} of the records"),
        ([HEAD, LINE], rf"a\.s0 in .*runs\.jsonl\.xz has version {VERSION + 1} of the records"),
        ([HEAD, {"name": "a.s0"}], "is damaged: KeyError: 'version'"),
        ([{"step": 0}], "its first line does not name the format"),
        ([[1]], "its first line does not name the format"),
        ([], "not a file of kept runs"),
    ],
)
def test_another_version_or_another_file_is_refused(tmp_path: Path, rows: list, told: str):
    with pytest.raises(RecordsError, match=told):
        kept_runs.read(packed(tmp_path / "runs.jsonl.xz", *rows))


def test_a_file_that_is_missing_cut_or_not_compressed_is_refused(tmp_path: Path):
    path = tmp_path / "runs.jsonl.xz"
    with pytest.raises(RecordsError, match="cannot be read: No such file"):
        kept_runs.read(path)
    path.write_text("{}\n")
    with pytest.raises(RecordsError, match="not a file of kept runs, or is damaged: Input format"):
        kept_runs.read(path)
    kept_runs.write(path, [run("a", {})])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(RecordsError, match="not a file of kept runs, or is damaged"):
        kept_runs.read(path)
    path.write_bytes(whole[:40] + bytes(40) + whole[80:])
    with pytest.raises(RecordsError, match=r"runs\.jsonl\.xz"):
        kept_runs.read(path)
