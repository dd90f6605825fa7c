"""The web server: GET and HEAD of a few fixed addresses. No path of a request is ever turned into a path of a file."""

import contextlib
import gzip
import json
import math
import re
import socket
import socketserver
import sys
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from .access import Access, is_local
from .feed import Feed
from .page import asset, assets, index, language_of

#: everything from here and nothing from elsewhere; no script or style but our own files (CSP level 3)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ALWAYS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
#: connections at a time: a browser holds up to six; seconds that one may take for its next request
_MOST_CONNECTIONS, _LONGEST_WAIT = 200, 60.0
_JSON = "application/json; charset=utf-8"
_GZIP = re.compile(r"(?:^|,)\s*gzip\s*(?:$|,|;\s*q=(?!0(?:\.0*)?\s*(?:$|,)))", re.IGNORECASE)


@dataclass(frozen=True)
class Visits:
    """What visitors get, and who may come in."""

    feed: Feed
    access: Access


class BoardServer(ThreadingHTTPServer):
    """One thread for each connection; none of them keeps the process alive.

    Raises:
        OSError: the address cannot be listened on.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, family: int, place: tuple, visits: Visits):
        self.address_family = family
        self.visits = visits
        self._open: dict[socket.socket, float] = {}  # -> since when its next request is waited for; inf: at an answer
        super().__init__(place, _Visit)

    @property
    def port(self) -> int:
        """That it listens on."""
        return self.server_address[1]

    def facts(self) -> dict:
        """For the terminal and for programs: `url`, `host`, `port`, `token`, `open_to_network`."""
        from .address import url_of

        host, token = self.server_address[0], self.visits.access.token
        url = url_of(host, self.port, token)
        return {"url": url, "host": host, "port": self.port, "token": token, "open_to_network": not is_local(host)}

    def server_bind(self) -> None:
        """As in the base class, without asking the name server for our name (it may take seconds)."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def process_request(self, request, client_address) -> None:
        """Where there are too many, the one that has kept us waiting longest gives way; none, and this one does."""
        if len(self._open) >= _MOST_CONNECTIONS:
            slowest = min(self._open.items(), key=lambda item: item[1], default=(None, math.inf))
            if slowest[1] == math.inf:
                self.shutdown_request(request)
                return
            self._hang_up(slowest[0])
        self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def waits(self, connection: socket.socket, since: float) -> None:
        """Its next request is waited for since then; inf: it is being answered."""
        if connection in self._open:
            self._open[connection] = since

    def service_actions(self) -> None:
        """Called a few times a second: a request that comes byte by byte must not take for ever."""
        now = time.monotonic()
        for connection, since in list(self._open.items()):
            if now - since > _LONGEST_WAIT:
                self._hang_up(connection)

    def _hang_up(self, connection: socket.socket) -> None:
        self._open.pop(connection, None)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Stop listening, and hang up on those who are still connected."""
        super().server_close()
        for connection in list(self._open):
            self._hang_up(connection)

    def handle_error(self, request, client_address) -> None:
        """A visitor that goes away is no news; a fault of ours is one line."""
        error = sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, TimeoutError, socket.timeout)):
            print(f"llamafactory-obs: board: {type(error).__name__}: {error}", file=sys.stderr)


class _Visit(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "llamafactory-obs", ""
    timeout = _LONGEST_WAIT  # of one reading, and of writing one answer
    disable_nagle_algorithm = True
    server: BoardServer

    def handle_one_request(self) -> None:
        """Wait for one, and answer it."""
        self.server.waits(self.connection, time.monotonic())
        super().handle_one_request()

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    def do_HEAD(self) -> None:
        """The same without its body."""
        self._answer()

    def _answer(self) -> None:
        self.server.waits(self.connection, math.inf)
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body is not read: what follows is not a request
        try:
            address = urlsplit(self.path)
            words = parse_qs(address.query, keep_blank_values=True, max_num_fields=20)
            query = {name: values[-1] for name, values in words.items()}
        except ValueError:
            self._fail(400, "bad request")
            return
        names, cookies = self.headers.get_all("Host", []), self.headers.get_all("Cookie", [])
        names += [address.netloc] if address.netloc or address.scheme else []
        verdict = self.server.visits.access.judge(names, cookies, query.get("token"), self.server.port)
        if verdict == "welcome":
            self._welcome(address.path, query)
        elif verdict != "in":
            self._refuse(verdict)
        elif address.path == "/":
            lang = language_of(query.get("lang"), self.headers.get("Accept-Language", ""))
            self._send(index(lang), "text/html; charset=utf-8")
        elif address.path.startswith("/api/"):
            self._api(address.path, query)
        elif (name := address.path[1:]) in assets():
            self._asset(name)
        else:
            self._fail(404, "not found")

    def _api(self, path: str, query: dict[str, str]) -> None:
        feed = self.server.visits.feed
        if path == "/api/state":
            chosen = query.get("runs")
            since = query.get("since", "0")
            have = query.get("have", "")
            if not re.fullmatch(r"[0-9]{1,15}", since) or not re.fullmatch(r"[0-9a-f,]{0,800}", have + (chosen or "")):
                self._fail(400, "bad request")
                return
            names = tuple(filter(None, chosen.split(","))) if chosen is not None else None
            found = feed.state(names, int(since), query.get("board", ""), frozenset(have.split(",")))
        elif match := re.fullmatch(r"/api/probe/([0-9a-f]{12})/([0-9]{1,9})", path):
            found = feed.probe(match[1], int(match[2]))
        else:
            found = None
        if found is None:
            self._fail(404, "not found")
        else:
            self._send(found, _JSON)

    def _asset(self, name: str) -> None:
        kind, content, tag = asset(name)
        if self.headers.get("If-None-Match") == tag:
            self._head(304, kind, 0, {"ETag": tag, "Cache-Control": "no-cache"})
        else:
            self._send(content, kind, {"ETag": tag, "Cache-Control": "no-cache"})

    def _welcome(self, path: str, query: dict[str, str]) -> None:
        """The token becomes a cookie and leaves the address, so that it is in no bookmark, history or screenshot."""
        name, value = self.server.visits.access.cookie(self.server.port)
        rest = urlencode({key: word for key, word in query.items() if key != "token"})
        # relative, for a proxy that serves the board under a longer path; never a name from the request
        here = f"./?{rest}" if rest else "./"
        more = {"Location": here, "Set-Cookie": f"{name}={value}; HttpOnly; SameSite=Lax; Path=/; Max-Age=2592000"}
        if path != "/":
            self._fail(404, "not found")
            return
        self._head(303, "text/plain; charset=utf-8", 0, more)

    def _refuse(self, why: str) -> None:
        code, words = {
            "wrong name": (403, "this board answers to 127.0.0.1 and localhost only"),
            "no token": (401, "open the address that the terminal shows: it holds the token"),
            "wrong token": (403, "wrong token; open the address that the terminal shows"),
        }[why]
        self._fail(code, words)

    def _fail(self, code: int, words: str) -> None:
        self._send(json.dumps({"error": words}).encode(), _JSON, code=code)

    def _send(self, body: bytes, kind: str, more: dict[str, str] | None = None, code: int = 200) -> None:
        more = more or {}
        if len(body) > 2000 and _GZIP.search(self.headers.get("Accept-Encoding", "")):
            body = gzip.compress(body, compresslevel=1, mtime=0)
            more = more | {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        self._head(code, kind, len(body), more)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, code: int, kind: str, length: int, more: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in (_ALWAYS | {"Cache-Control": "no-store"} | more).items():
            self.send_header(name, value)
        if code != 304:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses (a broken request, another method): short, and never the request's own words."""
        self.close_connection = True
        if code == 501:  # an unknown method: there are two
            self.send_response(405)
            self.send_header("Allow", "GET, HEAD")
        else:
            self.send_response(code)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_) -> None:
        """Says nothing: the terminal is for the address, and a log of requests would hold the token."""
