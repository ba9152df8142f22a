"""A page in headless Chromium, driven through its DevTools pipe: ``python -m scripts.browser PAGE PICTURE.png``.

Chromium alone suffices (Debian's package ``chromium``): no driver, no port, no package of Python. The protocol:
https://chromedevtools.github.io/devtools-protocol/
"""

import argparse
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from select import select
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage",
    "--no-default-browser-check", "--remote-debugging-pipe", "--hide-scrollbars",
    "--disable-3d-apis",  # a page has to draw without WebGL
)  # fmt: skip
_FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


class BrowserError(RuntimeError):
    """The browser is missing, ended, did not answer, or refused a command."""


class Page:
    """One page of a running browser. events: what the browser reported of it, in order."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int, seconds: float):
        self._process, self._write, self._read, self._end = process, write, read, time.monotonic() + seconds
        self._number, self._received, self._session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command.

        Raises:
            BrowserError: the browser ended, refused the command, or the time is up.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            if not select([self._read], [], [], max(0.0, self._end - time.monotonic()))[0]:
                raise BrowserError("the browser did not answer in time")
            block = os.read(self._read, 1 << 20)
            if not block:
                raise BrowserError(f"the browser ended with status {self._process.wait()}")
            self._received += block
        message, _, self._received = self._received.partition(b"\0")
        return dict(json.loads(message))

    def open(self, file: Path, ready: str) -> None:
        """Open a file and wait until the expression `ready` is true."""
        self.send("Page.navigate", url=file.absolute().as_uri())
        self.wait(f"document.documentElement && ({ready})")  # none before the first of the file is read

    def wait(self, expression: str) -> None:
        """Wait until the expression is true."""
        while not self.value(f"Boolean({expression})"):
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise's once it is kept.

        Raises:
            BrowserError: it throws.
        """
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(found["result"].get("description", "an exception"))
        return found["result"].get("value")

    def size(self, width: int, height: int) -> None:
        """Set the size of the window in pixels."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self) -> bytes:
        """What the window shows, as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])

    def requested(self) -> list[str]:
        """The addresses that the page asked for, itself included, without data inside of it."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        addresses = [event["params"]["request"]["url"] for event in sent]
        return [address for address in addresses if not address.startswith(("data:", "blob:"))]

    def seconds_to_first_paint(self) -> float:
        """From the navigation to the first text or picture."""
        self.wait(_FIRST_PAINT)
        return float(self.value(_FIRST_PAINT)) / 1000


@contextlib.contextmanager
def browser_page(seconds: float = 120.0) -> Iterator[Page]:
    """A page in a new headless browser with a new profile, both gone afterwards.

    seconds: for everything that is done with the page.

    Raises:
        BrowserError: no browser is installed, or it does not start.
    """
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise BrowserError("no Chromium found: apt-get install -y --no-install-recommends chromium")
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The browser reads commands from descriptor 3 and writes answers to 4.
        command = ["bash", "-c", f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}', "browser", program, *FLAGS]
        process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}"], pass_fds=(to_browser[0], from_browser[1]),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Page(process, to_browser[1], from_browser[0], seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(to_browser[1])
            os.close(from_browser[0])


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a picture of a page."""
    parser = argparse.ArgumentParser(prog="python -m scripts.browser", description=__doc__.partition(":")[0] + ".")
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--at", default="body", help="CSS selector of what the picture begins with (default: body)")
    parser.add_argument("--click", help="CSS selector of what to click first")
    parser.add_argument("--size", default="1280x900", help="of the window, in pixels (default: %(default)s)")
    options = parser.parse_args(arguments)
    width, height = map(int, options.size.split("x"))
    with browser_page() as page:
        page.size(width, height)
        page.open(options.page, "document.readyState === 'complete'")
        if options.click:
            page.value(f"document.querySelector({json.dumps(options.click)}).click()")
        page.value("document.documentElement.style.scrollBehavior = 'auto'")
        page.value(f"document.querySelector({json.dumps(options.at)}).scrollIntoView()")
        time.sleep(1.0)  # figures that came into view are drawn
        options.picture.write_bytes(page.picture())


if __name__ == "__main__":
    main()
