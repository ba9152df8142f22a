import base64
import hashlib
import json
import math
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hydra import initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from recipe import doctor, report
from recipe.health.record import Record
from recipe.pages.curves import drawn
from recipe.pages.differences import between, differences, experiment_of, flat
from recipe.pages.facts import cost, facts, state, timings, under_way
from recipe.pages.panels import Curve, Panel, every_metric, panels
from recipe.pages.run_page import run_page
from recipe.records.run_directory import RunDirectory
from recipe.records.versions import VERSION, RecordsError
from tests.composing import composed
from tests.recipe.pages.conftest import HOSTILE, make_run

pytestmark = pytest.mark.slow


class PageReader(HTMLParser):
    """What a browser would make of a page: elements with their attributes, scripts, and the text outside of them."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._inside != "style" and data.strip():
            self.text.append(data.strip())

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def island(self, name: str):
        return next(json.loads(text) for attributes, text in self.scripts if attributes.get("id") == f"data-{name}")


@pytest.fixture(scope="module")
def read(tmp_path_factory) -> PageReader:
    return PageReader(run_page([make_run(tmp_path_factory.mktemp("run"))], time.time()))


def test_the_page_loads_nothing_and_runs_only_the_scripts_whose_digests_it_names(read: PageReader):
    assert not [attributes for _, attributes in read.tags if {"src", "srcset", "action"} & attributes.keys()]
    hrefs = [attributes["href"] for _, attributes in read.tags if "href" in attributes]
    assert all(str(href).startswith(("#", "data:,")) for href in hrefs)
    policy = next(one["content"] for _, one in read.tags if one.get("http-equiv") == "Content-Security-Policy")
    run = [text for attributes, text in read.scripts if attributes.get("type") != "application/json"]
    digests = {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in run}
    assert len(run) == 2
    assert set(re.findall(r"'sha256-[^']*'", str(policy))) == digests
    assert "default-src 'none'" in str(policy)
    assert "unsafe-eval" not in str(policy)


def test_what_a_model_wrote_makes_no_element_and_is_shown_whole(read: PageReader):
    assert {tag for tag, _ in read.tags} <= {
        "html", "head", "meta", "title", "link", "style", "body", "header", "div", "h1", "h2", "h3", "span", "code",
        "nav", "a", "main", "section", "p", "table", "tr", "th", "td", "strong", "mark", "button", "noscript",
        "details", "summary", "label", "select", "footer", "script", "br", "pre",
    }  # fmt: skip
    assert len(read.scripts) == 5
    assert not [one for _, one in read.tags if any(name.startswith("on") for name in one)]
    samples = read.island("samples")
    hostile = next(row for row in samples["rows"] if row["guard"] != "none")
    for text in (samples["texts"][hostile["prompt"]], hostile["pieces"][0][0], hostile["skill"], hostile["guard"]):
        assert text.startswith("</script><script>document.title='RAN'</script><img src=x onerror=")
        assert "␛[31mred␛[0m ⟨U+202E⟩gnp.exe⟨U+202C⟩" in text
        assert not set("\x1b\u202e\u202c\ud800") & set(text)


def test_the_page_holds_the_numbers_of_the_run(read: PageReader):
    text = " ".join(read.text)
    assert "write 25.0% 50.0% ± 12.5 +25.0" in text
    assert "mean 37.5% 62.5% ± 10.0 +25.0" in text
    assert "ended : ended after step 3 with SandboxError: <b>down</b> ⟨U+202E⟩␛[31m" in text
    assert "gen 6.00 s 60% update_actor 3.00 s 30% rest 1.00 s 10%" in text
    assert "tokens, prompts included 300 replays 24" in text
    assert "masked 2 samples: 3, share: 0.02" in text
    assert "3 step" in text
    assert "data.seed 0 5" in text
    assert "credit.kind off counterfactual" in text
    assert "run.command" not in text[text.index("differences from") : text.index("the whole configuration")]


def test_figures_have_a_place_each_and_metrics_are_complete(read: PageReader):
    places = [one["id"] for tag, one in read.tags if one.get("class") == "figure"]
    assert set(read.island("figures")) == set(places)
    assert len(places) == len(set(places)) > 8
    assert read.island("metrics")[0]["reward/acc"] == [[1, 2, 3], [0.5, 0.5, 0.5]]


def test_the_band_of_training_samples_is_the_scatter_of_successive_steps(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "e", "r")
    for step, accuracy in enumerate((0.4, 0.6) * 4, start=1):
        run.log_metrics(step, {"reward/acc": accuracy})
    [panel] = panels([run], ["r"])["accuracy"]
    assert panel.curves[0].low == pytest.approx([value - 1.96 * 0.2 / 2**0.5 for value in (0.4, 0.6) * 4])


def test_curves_have_the_values_bands_and_lines_of_the_run(run: RunDirectory):
    found = panels([run], ["r"])
    assert list(found) == ["accuracy", "training", "credit", "protection"]
    mean, each, trained = found["accuracy"]
    assert (mean.curves[0].steps, mean.curves[0].values) == ((0, 3), (0.375, 0.625))
    assert mean.curves[0].low == pytest.approx((0.375, 0.625 - 1.96 * 0.1))
    assert [curve.name for curve in each.curves] == ["sql", "write"]
    assert each.curves[0].low is None
    assert list(trained.curves[0].steps) == [0, 1, 2]
    assert trained.curves[0].low is None  # three steps are too few
    level = found["protection"][0]
    assert level.title == "J of sql"
    assert {curve.name: curve.values[0] for curve in level.curves} == {
        "J before the update": 0.4, "anchor": 0.5, "line": 0.3,
    }  # fmt: skip


def test_several_runs_share_panels_and_their_settings_are_compared(tmp_path: Path):
    runs = [make_run(tmp_path, name, hostile=False) for name in ("a", "b")]
    config = composed("experiment=quickstart", "data.seed=6")
    runs[1].write_config(config)
    found = panels(runs, ["a", "b"])["accuracy"]
    assert [panel.title for panel in found] == [
        "validation: mean", "validation: sql", "validation: write", "training samples of each step",
    ]  # fmt: skip
    assert [curve.name for curve in found[1].curves] == ["a", "b"]
    page = PageReader(run_page(runs, time.time()))
    assert "data.seed 5 6" in " ".join(page.text)
    assert page.island("samples")["runs"] == ["a", "b"]
    assert {row["run"] for row in page.island("samples")["rows"]} == {0, 1}


def test_a_long_curve_is_thinned_and_numbers_that_are_none_are_left_out():
    rows = [{"step": float(step), "a": float("nan") if step == 1 else step / 3} for step in range(5000)]
    steps, values = every_metric(rows)["a"]
    assert 1000 < len(steps) <= 2000
    assert steps[:2] == [0, 4]
    assert values[1] == 1.33333


def test_differences_are_found_within_a_command_that_hydra_started_and_leave_it_as_it_was():
    config = composed("experiment=quickstart", "data.seed=5")
    with initialize_config_module("configs", version_base=None):
        own = GlobalHydra.instance().hydra
        rows, remark = differences(config, "python -m recipe.train experiment=quickstart data.seed=5")
        assert GlobalHydra.instance().hydra is own
    assert (("data.seed", "0", "5") in rows, remark) == (True, "")


def test_differences_are_those_from_the_experiment_of_the_command():
    config = composed("experiment=quickstart", "data.seed=5")
    rows, remark = differences(config, "python -m recipe.train experiment=quickstart data.seed=5")
    assert (rows, remark) == ([("data.seed", "0", "5")], "")
    config.run.directory, config.run.experiment = "/runs/other/r", "other"
    elsewhere = differences(config, "python -m recipe.train experiment=quickstart data.seed=5 run.experiment=other")[0]
    assert set(elsewhere) - set(rows) == {("run.experiment", "quickstart", "other")}
    loader = "actor_rollout_ref.actor.data_loader_seed"  # follows data.seed, as other seeds do
    apart = composed("experiment=quickstart", "data.seed=5", f"{loader}=3")
    assert differences(apart, "python -m recipe.train experiment=quickstart")[0] == [
        (loader, "0", "3"), ("data.seed", "0", "5"),
    ]  # fmt: skip
    assert differences(config, "python -m recipe.train")[1] == "The run's command names no experiment."
    assert "no experiment 'gone'" in differences(config, "python x experiment=gone")[1]
    assert experiment_of("x 'unclosed") is None
    assert between([{"a": "1", "run.name": "x"}, {"a": "2", "run.name": "y", "b": "3"}]) == [
        ("a", ["1", "2"]), ("b", ["-", "3"]),
    ]  # fmt: skip
    assert flat(config)["data.seed"] == "5"


def test_a_state_is_that_of_the_last_event():
    assert [state([{"event": last}]) for last in ("end", "failed", "update")] == ["finished", "failed", "not finished"]
    assert state([]) == "not started"


def test_timings_share_a_step_and_the_rest_is_last():
    rows = [{"timing_s/step": 10.0, "timing_s/gen": 4.0}, {"timing_s/step": 20.0, "timing_s/gen": 6.0}]
    assert [name for name, _, _ in timings(rows)] == ["gen", "rest"]
    assert [share for _, *share in timings(rows)] == [[5.0, pytest.approx(1 / 3)], [10.0, pytest.approx(2 / 3)]]
    assert timings([]) == []
    assert cost([], [], 8) == []


def test_a_step_whose_numbers_are_none_costs_the_page_no_mean(run: RunDirectory):
    broken = {"timing_s/step": math.nan, "timing_s/gen": math.inf, "credit/replays": math.nan}
    before = facts(run, 0.0)
    run._append("metrics.jsonl", {"step": 99} | broken)
    after = facts(run, 0.0)
    assert after.timings == before.timings
    assert after.cost == before.cost
    assert ("replays", "24") in after.cost


def test_settings_that_this_release_forbids_cost_the_page_its_interference_only(run: RunDirectory):
    config = run.read_config()
    config.credit.guessed = 1
    run.write_config(config)
    found = facts(run, time.time())
    assert found.interference == []
    assert list(found.skills) == []


def test_interference_is_in_points_with_the_largest_change_darkest(run: RunDirectory):
    (stage, cells), = facts(run, time.time()).interference  # fmt: skip
    assert stage == "1"
    assert [round(cell.measured or 0.0, 6) for cell in cells] == [25.0, 25.0]
    assert {cell.colour for cell in cells} == {"rgb(0 158 115 / 0.75)"}


def test_a_run_that_has_only_begun_has_a_page(tmp_path: Path):
    run = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    run.write_config(composed("experiment=quickstart"))
    text = " ".join(PageReader(run_page([run], time.time())).text)
    assert "not started" in text
    assert "No validation has been done yet." in text
    assert "No samples are recorded" in text


def test_a_run_that_was_cut_off_while_it_wrote_has_a_page(run: RunDirectory):
    for name in ("metrics.jsonl", "events.jsonl", "generations/train_000003.jsonl"):
        path = run.path / name
        path.write_text(path.read_text()[:-20])
    read = PageReader(run_page([run], time.time()))
    assert "write 25.0%" in " ".join(read.text)
    assert len(read.island("samples")["rows"]) == 14


def test_the_time_under_way_is_that_of_each_start_whatever_the_clock_did():
    times = [0.0, 10.0, 25.0, 1000.0, 1005.0, 900.0, 903.0, 2000.0]
    kinds = ["start", "step", "failed", "start", "step", "step", "end", "refused"]
    assert under_way([{"event": kind, "time": time} for kind, time in zip(kinds, times, strict=True)]) == 33.0


def test_a_refused_start_is_an_event_and_changes_nothing_of_the_run(run: RunDirectory):
    before = facts(run, time.time())
    run.refuse("train.parquet: no such file")
    after = facts(run, time.time())
    assert (before.state, before.findings) == (after.state, after.findings)
    assert any(kind == "refused" and "no such file" in text for _, kind, _, text in after.events)


def test_a_refused_start_of_a_new_run_leaves_no_folder(tmp_path):
    new = RunDirectory.prepare(str(tmp_path), "e", "new")
    new.refuse("no such file")
    assert not new.path.exists()
    other = RunDirectory.prepare(str(tmp_path), "e", "other")
    (other.path / "logs" / "mine").write_text("kept")
    other.refuse("no such file")
    assert (other.path / "logs" / "mine").exists()


def test_a_time_or_a_file_s_name_that_is_no_number_costs_the_run_no_page(run: RunDirectory):
    with open(run.path / "events.jsonl", "a") as file:
        file.write('{"time": 1e300, "event": "alert"}\n')
    (run.path / "generations" / "train_³.jsonl").write_text("{}\n")
    assert ("time under way", "-") in cost(run.metrics(), run.events(), 1)
    assert "alert" in run_page([run], time.time())


def test_folders_that_cannot_be_read_are_refused_by_name(run: RunDirectory, tmp_path: Path, capsys):
    with pytest.raises(RecordsError, match="is not a run directory"):
        RunDirectory.existing(tmp_path)
    assert report.main(["page", str(tmp_path / "none")]) == 2
    assert "none is not a run directory: it has no config.yaml" in capsys.readouterr().err
    config = run.path / "config.yaml"
    config.write_text(config.read_text().replace(f"records_version: {VERSION}", "records_version: 99"))
    assert report.main(["page", str(run.path)]) == 2
    assert "has version 99 of the records" in capsys.readouterr().err


def test_records_that_no_run_wrote_are_reported_in_one_line(run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys):
    config = OmegaConf.load(run.path / "config.yaml")
    config.data.train_batch_size = "abc"
    config.data.max_response_length = [1]
    OmegaConf.save(config, run.path / "config.yaml")
    assert report.main(["page", str(run.path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the page cannot be made of these records: " in line
    monkeypatch.setattr(Record, "of", lambda *_: 10.0**400)
    assert doctor.main([str(run.path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "has records that cannot be read: OverflowError" in line


def test_the_command_writes_the_page_into_the_run_and_caps_its_samples(run: RunDirectory, capsys):
    assert report.main(["page", str(run.path), "--samples", "6"]) == 0
    path = run.path / "run.html"
    assert capsys.readouterr().out == f"{path}\n"
    text = path.read_text()
    assert "9 of 15 recorded samples are left out" in text
    assert HOSTILE[:20] not in text
    assert path.stat().st_size < 2_500_000


@pytest.mark.parametrize("looks", [("line",), ("line", "dashed", "dotted")])
def test_twelve_runs_differ_in_colour_or_dash(looks: tuple[str, ...]) -> None:
    curves = [Curve(f"run {number}", number, [1, 2], [0.1, 0.2], look=look) for number in range(12) for look in looks]
    text = json.dumps(drawn(Panel("accuracy", curves), 12))
    glyphs = re.findall(r'"glyph": {"type": "object", "name": "Line", "id": "[^"]*", "attributes": {(.*?)}}', text)
    drawn_as = {re.sub(r'.*"line_color"', "", glyph) for glyph in glyphs}
    assert len(glyphs) == len(curves) == len(drawn_as)
