"""A board that listens, for the tests: over real sockets, in this process."""

import contextlib
import http.client
import json
import socket
import threading
import time
from pathlib import Path

from llamafactory_obs.board.access import Access
from llamafactory_obs.board.address import listen
from llamafactory_obs.board.feed import Feed
from llamafactory_obs.board.server import Visits
from llamafactory_obs.record.schema import encode


class Board:
    """One board; `with Board(folder) as board: board.get("/")`."""

    def __init__(self, *folders: Path, host: str = "127.0.0.1", token: str | None = None, price: float | None = None):
        self.feed = Feed(tuple(folders), price=price)
        self.access = Access.for_host(host, token)
        self.server = listen(host, 0, Visits(self.feed, self.access))
        self.port = self.server.port
        self.url = f"http://127.0.0.1:{self.port}/"
        self.runs = self.feed.look_for_runs()
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers (lower case) and body. `Accept_Language` stands for `Accept-Language`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            return answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read()

    def raw(self, request: bytes) -> bytes:
        """What comes back for these bytes, until the server closes or is silent for 2 s."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(request)
            out = b""
            with contextlib.suppress(TimeoutError):
                while block := connection.recv(65536):
                    out += block
            return out

    def state(self, **query) -> dict:
        """`/api/state` as the page asks for it."""
        words = "&".join(f"{name}={value}" for name, value in query.items())
        status, _, body = self.get(f"/api/state?{words}")
        assert status == 200, body
        return json.loads(body)

    def wait(self, condition, seconds: float = 60.0, **query) -> dict:
        """The first state for which `condition(state)` is true."""
        until = time.monotonic() + seconds
        while not condition(state := self.state(**query)):
            assert time.monotonic() < until, state
            time.sleep(0.2)
        return state

    def stop(self) -> None:
        """The server goes away; its port is free."""
        self.server.shutdown()
        self.server.server_close()
        self.feed.close()

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_) -> None:
        self.stop()


def append(folder: Path, name: str, *rows: dict) -> None:
    """Rows at the end of a file of the record."""
    (folder / "obs").mkdir(parents=True, exist_ok=True)
    with (folder / "obs" / name).open("ab") as handle:
        handle.write(b"".join(map(encode, rows)))


def visit(browser, url: str, width: int = 1280, height: int = 900, lang: str | None = None) -> None:
    """Open the board and wait until it is painted once."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    browser.seen.clear()
    browser.call("Page.navigate", url=url + (f"?lang={lang}" if lang else ""))
    until(browser, "document.body && document.body.dataset.painted")


def until(browser, expression: str, seconds: float = 60.0):
    """Wait until an expression is true in the page; returns its value."""
    end = time.monotonic() + seconds
    while not (value := browser.evaluate(f"(({expression}) ?? null) instanceof Node || ({expression})")):
        assert time.monotonic() < end, expression
        time.sleep(0.05)
    return value
