"""Drives headless Chromium over its own pipe: opens a page, listens for errors, clicks, takes pictures."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

# The browser reads commands from descriptor 3 and answers on 4: this puts the ends of two pipes there.
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-dev-shm-usage",
)  # fmt: skip


def executable():
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One open page. `errors` collects what its scripts throw or report, `requests` every address it asks for,
    from `open` on."""

    def __init__(self, process, reading, writing, session):
        self._process, self._reading, self._writing = process, reading, writing
        self._buffer, self._number, self._session = b"", 0, session
        self.errors, self.requests = [], []

    def send(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self, seconds=60):
        end = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reading], [], [], max(0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            block = os.read(self._reading, 1 << 20)
            assert block, "the browser went away"
            self._buffer += block
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, told):
        if method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(told["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and told["type"] == "error":
            self.errors.append(str(told["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])

    def look(self, width, height=900, *, dark=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="", features=[feature])
        self.wait("true")

    def open(self, path):
        self.errors, self.requests = [], []
        self.send("Page.navigate", url=Path(path).resolve().as_uri())
        self.wait("document.readyState === 'complete'")

    def wait(self, expression, seconds=30):
        """Wait until an expression is true, and two frames were drawn after that."""
        end = time.monotonic() + seconds
        while not self.run(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def run(self, expression):
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def click(self, selector):
        """Click into the middle of what a selector finds, with a real mouse event."""
        self.run(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        x, y = self.run(f"(() => {{ const b = {box}; return [b.x + b.width / 2, b.y + b.height / 2]; }})()")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path, *, whole=True):
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        Path(path).write_bytes(base64.b64decode(data["data"]))

    def _clip(self, whole):
        if not whole:
            return {}
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def pdf(self, path):
        data = self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        Path(path).write_bytes(base64.b64decode(data["data"]))


@contextlib.contextmanager
def chromium(folder):
    """Yield a blank `Page` of a browser that keeps its profile in `folder`."""
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()

    ends = [str(to_browser), str(from_browser)]
    words = [sys.executable, "-c", START, *ends, executable(), *ARGUMENTS, f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(
        words, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        page = Page(process, to_us, from_us, None)
        target = next(each for each in page.send("Target.getTargets")["targetInfos"] if each["type"] == "page")
        page._session = page.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for room in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{room}.enable")
        yield page
    finally:
        process.terminate()
        process.wait(20)
        os.close(to_us)
        os.close(from_us)
