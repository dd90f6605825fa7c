"""A real headless Chromium, driven over its debugging pipe (Chrome DevTools Protocol): no port, no package."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--window-size=1280,900",
]


def find() -> str | None:
    """The browser's path, None where none is installed."""
    return next((path for path in map(shutil.which, _NAMES) if path), None)


class Browser:
    """One page in one browser. `with Browser() as browser: browser.open(file); browser.evaluate("1 + 1")`."""

    def __init__(self):
        program = find()
        if program is None:
            pytest.skip(f"no browser is installed (looked for {', '.join(_NAMES)})")
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()

        def hand_over() -> None:  # the protocol reads from descriptor 3 and writes to 4
            low, high = os.dup(to_child), os.dup(from_child)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self._process = subprocess.Popen(
            [program, *_QUIET, f"--user-data-dir={self._folder.name}", "about:blank"],
            close_fds=False,
            preexec_fn=hand_over,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        self._reader = os.fdopen(self._in, "rb")
        self._number, self._session, self.seen = 0, None, []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params) -> dict:
        """One command; what happens meanwhile is kept in `seen`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.seen.append(answer)

    def _receive(self) -> dict:
        text = bytearray()
        while (byte := self._reader.read1(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        return json.loads(text)

    def open(self, file: Path, width: int = 1280, height: int = 900) -> None:
        """Load a file and wait for it."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.seen.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        while not any(one.get("method") == "Page.loadEventFired" for one in self.seen):
            self.seen.append(self._receive())

    def evaluate(self, expression: str):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more) -> None:
        """`mouseMoved`, `mousePressed` or `mouseReleased` at a place in the window."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1, **more)

    def picture(self, file: Path) -> None:
        """The whole page as a PNG."""
        import base64

        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        file.write_bytes(base64.b64decode(answer["data"]))

    def methods(self, name: str) -> list[dict]:
        """What was seen of one kind, such as `Network.requestWillBeSent`."""
        return [one["params"] for one in self.seen if one.get("method") == name]

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_) -> None:
        self._process.terminate()
        self._process.wait(60)
        os.close(self._out)
        self._reader.close()
        self._folder.cleanup()
