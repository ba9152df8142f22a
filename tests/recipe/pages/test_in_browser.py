"""The page in headless Chromium: it draws, filters, runs nothing that a model wrote, and asks for nothing."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from recipe.pages.run_page import write_run_page
from scripts.browser import NAMES, BrowserError, Page, browser_page
from tests.recipe.pages.conftest import make_run

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
    page.value("document.getElementById('metric').scrollIntoView()")
    page.wait("document.getElementById('any-metric')?.dataset.metric")
    source = "Bokeh.documents.map(one => one.get_model_by_name('all metrics 0')).find(Boolean).data"
    assert page.value(f"[{source}.step, {source}.value]") == [[1, 2, 3], [0.333333, 0.666667, 1]]
    assert errors(page) == []
    assert page.requested() == [written.as_uri()]
    assert page.value("performance.getEntriesByType('resource').length") == 0


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
