"""The list of runs in headless Chromium: it shows, refreshes itself, compares, and runs nothing that a name holds."""

import shutil
import threading
from collections.abc import Iterator

import pytest
import uvicorn

from recipe.records.run_directory import RunDirectory
from recipe.reports.serve import application, listening_socket
from scripts.browser import NAMES, Page, browser_page
from tests.recipe.pages.conftest import HOSTILE, make_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not any(map(shutil.which, NAMES)), reason="no Chromium: apt-get install -y --no-install-recommends chromium"
    ),
]
NAME = HOSTILE.replace("/", "|").replace("\ud800", "")
CELLS = "[...document.querySelectorAll('#runs tr')].map(row => [...row.cells].map(cell => cell.textContent))"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    root = tmp_path_factory.mktemp("outputs")
    make_run(root, NAME)
    return make_run(root, "a")


@pytest.fixture(scope="module")
def address(run: RunDirectory) -> Iterator[str]:
    listening = listening_socket("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(application(run.path.parents[1]), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_the_list_refreshes_itself_and_leads_to_a_page_that_compares(run: RunDirectory, address: str):
    with browser_page(seconds=300) as page:
        page.size(1280, 900)
        open_list(page, address)
        rows = page.value(CELLS)
        assert [row[3:7] for row in rows] == [["3", "50.0%", "-", "37.5%"]] * 2
        assert rows[0][1].startswith("quickstart / a")
        assert rows[1][1].startswith("quickstart / <|script><script>document.title='RAN'<|script><img src=x")
        assert page.value("document.querySelectorAll('img, main script').length") == 0
        page.value("document.querySelectorAll('#runs input').forEach(box => box.click())")
        run.log_metrics(4, {"reward/acc": 0.75})
        run.log_event("step", step=4, reward=0.5)
        page.wait(f"({CELLS})[0][3] == '4'")
        assert page.value(CELLS)[0][2:7] == ["running", "4", "75.0%", "0.500", "37.5%"]
        assert page.value("[...document.querySelectorAll('#runs input')].map(box => box.checked)") == [True, True]
        page.value("document.getElementById('compare').click()")
        page.wait("location.pathname == '/page' && document.documentElement?.dataset.ready")
        assert page.value("document.querySelectorAll('header h1').length") == 2
        assert page.value("document.title").startswith("a, ")
        assert refused(page) == []


def test_a_filter_and_a_server_that_ended_are_shown(run: RunDirectory, address: str):
    with browser_page(seconds=300) as page:
        open_list(page, address)
        page.value("{const box = document.getElementById('filter'); box.value = ' / a'; "
                   "box.dispatchEvent(new Event('input'))}")  # fmt: skip
        assert len(page.value(CELLS)) == 1
        assert page.value("document.getElementById('count').textContent") == "1 of 2 shown"
        page.value("window.fetch = () => Promise.reject(new Error('gone'))")
        page.wait("document.getElementById('status').textContent.endsWith('serve: gone')")


def open_list(page: Page, address: str) -> None:
    page.send("Page.navigate", url=address + "/")
    page.wait("document.documentElement?.dataset.ready")


def refused(page: Page) -> list[dict]:
    """What the pages' scripts threw, and what the browser refused them."""
    return [
        event
        for event in page.events
        if event.get("method") == "Runtime.exceptionThrown"
        or (event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error")
    ]
