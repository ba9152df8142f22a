"""The page in headless Chromium: it draws, filters, runs nothing that a model wrote, and asks for nothing."""

import io
import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

from recipe.pages.run_page import write_run_page
from scripts.browser import NAMES, BrowserError, Page, browser_page
from tests.recipe.pages.conftest import make_run, replay, with_credit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not any(map(shutil.which, NAMES)), reason="no Chromium: apt-get install -y --no-install-recommends chromium"
    ),
]
READY = "document.documentElement?.dataset.ready"  # null while one document takes the place of another
# Elements that Bokeh made, of some height.
DRAWN = "[...document.querySelectorAll('.figure > *')].filter(one => one.offsetHeight > 200).length"


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with browser_page(seconds=600) as page:
        page.size(1280, 1600)
        yield page


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    return write_run_page([make_run(tmp_path_factory.mktemp("run"))])


@pytest.fixture
def page(browser: Page, written: Path) -> Page:
    browser.events.clear()
    browser.open(written, READY)
    return browser


def choose(page: Page, control: str, value: str) -> list[str]:
    """Choose a filter's value; returns the chips of the samples that are left, joined for each."""
    page.value(
        f"{{const box = document.getElementById('filter-{control}'); box.value = {json.dumps(value)};"
        "box.dispatchEvent(new Event('change'))}"
    )
    chips = page.value(
        "[...document.querySelectorAll('.sample')].map(one => "
        "[...one.querySelectorAll('.chips .chip')].map(chip => chip.textContent).join(' | '))"
    )
    return list(chips)


def errors(page: Page) -> list[dict]:
    """What the page's scripts threw, and what the browser refused it."""
    logged = [event for event in page.events if event.get("method") == "Log.entryAdded"]
    return [event for event in page.events if event.get("method") == "Runtime.exceptionThrown"] + [
        event for event in logged if event["params"]["entry"]["level"] == "error"
    ]


def test_the_page_draws_filters_and_explains_without_an_error_or_a_request(page: Page, written: Path):
    assert page.value("document.createElement('canvas').getContext('webgl')") is None
    page.wait(f"{DRAWN} >= 3")
    assert page.value("document.querySelectorAll('.sample').length") == 15
    assert len(choose(page, "verdict", "right")) == 6
    right = choose(page, "step", "2")
    assert right == [
        "update 2 | write | right | reward 1.00 | 100% of tests",
        "update 2 | sql | right | reward 1.00 | 100% of tests",
    ]
    assert len(choose(page, "credit", "measured")) == 1
    page.value("document.querySelectorAll('.answer mark')[1].click()")
    explained = page.value("document.querySelector('.step').textContent")
    assert explained.startswith("credit -0.250")
    assert "test 2: passes, replayed passestest 3: fails, replayed passestest 4: fails, replayed fails" in explained
    assert "replays 2" in explained
    replay = "document.querySelector('.step .replay')"
    assert page.value(f"{replay}.querySelector('figcaption').textContent") == (
        "replay, this step changed: passes 75% of the tests (1 passes, 2 passes, 3 passes, 4 fails)"
    )
    assert page.value(f"[...{replay}.querySelectorAll('span')].map(one => one.textContent)")[0] == "- line two\n"
    assert page.value(f"{replay}.querySelector('pre').textContent").count("\n+ </script><script>") == 1
    page.value("document.getElementById('metric').scrollIntoView()")
    page.wait("document.getElementById('any-metric')?.dataset.metric")
    source = "Bokeh.documents.map(one => one.get_model_by_name('all metrics 0')).find(Boolean).data"
    assert page.value(f"[{source}.step, {source}.value]") == [[1, 2, 3], [0.333333, 0.666667, 1]]
    assert errors(page) == []
    assert page.requested() == [written.as_uri()]
    assert page.value("performance.getEntriesByType('resource').length") == 0


def test_a_step_of_cut_answers_has_the_cut_before_it_and_the_one_after(browser: Page, tmp_path: Path):
    lines = [f"x{line} = {line}\n" for line in range(16)]
    ends = [sum(map(len, lines[:line])) for line in range(17)]
    cuts = [replay(line, "".join(lines[line:]), "", line / 16, change="cut") for line in range(0, 16, 2)]
    several = [replay(-1, f"x{line}", "", 0.0, change="several") for line in range(10)]
    row = with_credit(
        0, response="".join(lines), credit_values=[0.1] * 16, credit_tests=[], credit_replayed=[*cuts, *several],
        credit_spans=[list(span) for span in pairwise(ends)],
    )  # fmt: skip
    run = make_run(tmp_path, steps=1)
    (run.path / "generations" / "train_000001.jsonl").write_text(json.dumps(row) + "\n")
    browser.open(path := write_run_page([run]), f"location.href == {json.dumps(path.as_uri())} && {READY}")
    browser.value("document.querySelectorAll('.answer mark')[5].click()")
    captions = browser.value("[...document.querySelectorAll('.replay figcaption')].map(one => one.textContent)")
    assert captions[:2] == [
        "replay, cut off from step 5 on: passes 25% of the tests",
        "replay, cut off from step 7 on: passes 38% of the tests",
    ]
    assert captions[2:] == ["replay, several steps changed: passes 0% of the tests"] * 6
    assert "and 4 more replays" in browser.value("document.querySelector('.step').textContent")


def place(page: Page, step: float, value: float) -> tuple[float, float]:
    """Where the first figure, that of the mean's accuracy, draws a value: pixels of the window."""
    x, y = page.value(
        "(() => {const view = [...Bokeh.index][0], corner = view.el.getBoundingClientRect();"
        f"return [corner.left + view.frame.x_scale.compute({step}),"
        f"corner.top + view.frame.y_scale.compute({value})]}})()"
    )
    return x, y


def mouse(page: Page, kind: str, at: tuple[float, float], button: str = "none") -> None:
    page.send("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button=button, buttons=int(button == "left"))


def test_a_curve_has_its_band_tells_its_values_and_is_zoomed(page: Page):
    page.value("document.documentElement.style.scrollBehavior = 'auto'")
    page.value("document.getElementById('accuracy-0').scrollIntoView()")
    page.wait(f"{DRAWN} >= 1")
    data = page.value("[...Bokeh.index][0].model.renderers[0].data_source.data")
    assert data["value"] == [0.375, 0.625]
    # One validation says how sure it is: 1.96 standard errors to both sides, drawn in the curve's colour, but paler.
    low, high = (float(data[name][1]) for name in ("low", "high"))
    assert (low, high) == pytest.approx((0.625 - 0.196, 0.625 + 0.196), abs=1e-4)
    picture = Image.open(io.BytesIO(page.picture())).convert("RGB")

    def colour(step: float, value: float) -> tuple[int, ...]:
        x, y = map(round, place(page, step, value))
        pixel = picture.getpixel((x, y))
        assert isinstance(pixel, tuple)
        return pixel

    below, above = (colour(2.9, value) for value in (low + 0.05, high - 0.05))
    assert below == above != (255, 255, 255)
    assert below[2] > below[1] > below[0]
    # Under the mouse a point tells what it is.
    mouse(page, "mouseMoved", place(page, 3, 0.625))
    page.wait("[...Bokeh.index][0].model.renderers.some(one => one.data_source.inspected.indices.length)")
    deep = (
        "(function texts(node) {return [...node.querySelectorAll('*')].map(one => "
        "one.shadowRoot ? texts(one.shadowRoot) : one.childElementCount ? '' : one.textContent).join(' ')})"
    )
    page.wait(f"{deep}(document).includes('0.6250')")
    assert f"{low:.4f} to {high:.4f}" in page.value(f"{deep}(document)")
    # What a drag marks fills the figure.
    shown = "(range => [range.start, range.end])([...Bokeh.index][0].model.x_range)"
    before = page.value(shown)
    start, end = place(page, 1, 0.4), place(page, 2, 0.6)
    mouse(page, "mousePressed", start, "left")
    for share in (0.3, 0.6, 1.0):
        mouse(
            page, "mouseMoved", (start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])), "left"
        )
    mouse(page, "mouseReleased", end, "left")
    page.wait(f"{shown}[0] > {before[0]} + 0.5")
    assert page.value(shown) == pytest.approx([1, 2], abs=0.05)
    assert errors(page) == []


def test_the_step_that_earned_it_stands_below_its_prompt_and_above_what_its_colours_mean(page: Page):
    question = "document.querySelectorAll('.question')[1]"
    assert page.value(f"[...{question}.querySelectorAll('pre')].map(one => one.textContent)") == [
        "task 0", "line one 0\nline two\nrest",
    ]  # fmt: skip
    kinds = page.value(f"[...{question}.querySelectorAll('.legend mark')].map(one => one.className)")
    assert kinds == ["earned", "cost", "unknown"]
    colours = "[...{}.querySelectorAll('{} mark')].map(one => getComputedStyle(one).backgroundColor)"
    shown = page.value(colours.format(question, ".example"))
    assert shown == page.value(colours.format(question, ".legend"))[:2]


def test_what_a_model_wrote_is_text(page: Page):
    assert page.value("document.title") == "quickstart / r"
    hostile = page.value(
        "[...document.getElementById('filter-guard').options].map(one => one.value).find(one => one[0] == '<')"
    )
    assert len(choose(page, "guard", hostile)) == 3
    answer = page.value("document.querySelector('.answer pre').textContent")
    assert answer == hostile
    assert answer.startswith("</script><script>document.title='RAN'</script><img src=x")
    assert page.value("document.querySelectorAll('img, main script').length") == 0
    # Even a script that got into the document would not run: it is none of the two that the policy names.
    page.value(
        "{const one = document.createElement('script'); one.textContent = \"document.title = 'RAN'\";"
        "document.body.append(one)}"
    )
    assert page.value("document.title") == "quickstart / r"
    assert "Content Security Policy" in str(errors(page))


def test_a_page_that_asks_for_something_is_noticed(browser: Page, tmp_path: Path):
    asking = tmp_path / "asking.html"
    asking.write_text("<title>a</title><img src='http://127.0.0.1:59999/x.png'><script>document.title = 'RAN'</script>")
    browser.events.clear()
    browser.open(asking, "document.title == 'RAN' && document.readyState == 'complete'")
    assert browser.requested() == [asking.as_uri(), "http://127.0.0.1:59999/x.png"]
    with pytest.raises(BrowserError, match="thrown on purpose"):
        browser.value("(() => { throw new Error('thrown on purpose') })()")
