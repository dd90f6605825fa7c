"""A real HTTP server that plays the services: checks what they check, answers as they answer."""

import base64
import hashlib
import hmac
import http.server
import json
import threading
import time
from collections import deque
from urllib.parse import parse_qs, urlsplit

SECRET = "SEC0f5a1b2c3d4e"
#: what each service answers to a message that it takes
FINE = {
    "json": b"",
    "slack": b"ok",
    "feishu": b'{"code":0,"data":{},"msg":"success"}',
    "dingtalk": b'{"errcode":0,"errmsg":"ok"}',
    "wecom": b'{"errcode":0,"errmsg":"ok"}',
}
BAD_SIGN = {
    "feishu": b'{"code":19021,"msg":"sign match fail or timestamp is not within one hour from current time"}',
    "dingtalk": b'{"errcode":310000,"errmsg":"sign not match"}',
}


def _hmac(key: bytes, text: bytes) -> str:
    return base64.b64encode(hmac.digest(key, text, "sha256")).decode()


class Service:
    """One service on a port of its own.

    Attributes:
        script: answers to the next requests, `(status, headers, body)`; "hang" never answers, "drop" hangs up. Once it
            is empty every good message is taken.
        taken: the bodies that were taken, parsed. times: when each request came, taken or not.
    """

    def __init__(self, kind: str, secret: str | None = None, port: int = 0):
        self.kind, self.secret = kind, secret
        self.script: deque = deque()
        self.taken: list[dict] = []
        self.times: list[float] = []
        self.closing = threading.Event()
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                content = self.rfile.read(int(self.headers["Content-Length"]))
                service.times.append(time.monotonic())
                step = service.script.popleft() if service.script else None
                if step == "hang":
                    service.closing.wait(30)
                    return
                if step == "drop":
                    return
                status, headers, body = step or service.judge(self.path, self.headers, content)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook/0123456789abcdef?access_token=fedcba9876543210"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def judge(self, path: str, headers, content: bytes) -> tuple[int, dict, bytes]:
        """What the service itself would say."""
        message = json.loads(content)
        query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        if self.secret is not None and not self._signed(query, headers, content, message):
            return (200, {}, BAD_SIGN[self.kind]) if self.kind in BAD_SIGN else (403, {}, b"bad signature")
        if self.kind == "wecom" and len(message["markdown"]["content"].encode()) > 4096:
            return 200, {}, b'{"errcode":40058,"errmsg":"markdown.content exceed max length 4096"}'
        if self.kind in ("feishu", "dingtalk") and len(content) > 20000:
            return 200, {}, b'{"code":9499,"errcode":40035,"msg":"Bad Request","errmsg":"too long"}'
        self.taken.append(message)
        return 200, {}, FINE[self.kind]

    def _signed(self, query: dict, headers, content: bytes, message: dict) -> bool:
        if self.kind == "feishu":  # seconds; the key is what is signed, the text is empty
            stamp = message["timestamp"]
            return abs(time.time() - int(stamp)) < 3600 and message["sign"] == _hmac(
                f"{stamp}\n{self.secret}".encode(), b""
            )
        if self.kind == "dingtalk":  # milliseconds, in the query
            stamp = query["timestamp"]
            signed = _hmac(self.secret.encode(), f"{stamp}\n{self.secret}".encode())
            return abs(time.time() * 1000 - int(stamp)) < 3.6e6 and query["sign"] == signed
        stamp = headers["X-Obs-Timestamp"]
        mac = hmac.new(self.secret.encode(), f"{stamp}.".encode() + content, hashlib.sha256).hexdigest()
        return headers["X-Obs-Signature"] == f"sha256={mac}"

    def texts(self) -> list[str]:
        """The words of each message that was taken."""
        ways = {
            "json": lambda m: "\n".join(event["text"] for event in m["events"]),
            "slack": lambda m: m["text"],
            "feishu": lambda m: (
                m["card"]["header"]["title"]["content"] + "\n" + m["card"]["elements"][0]["text"]["content"]
            ),
            "dingtalk": lambda m: m["markdown"]["text"],
            "wecom": lambda m: m["markdown"]["content"],
        }
        return [ways[self.kind](message) for message in self.taken]

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
