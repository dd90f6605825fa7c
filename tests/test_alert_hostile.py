"""Webhooks against servers that answer as no service does: without end, drop by drop, or with the address in it."""

import socket
import threading
import time
import tracemalloc

import pytest

from llamafactory_obs.alerts import post as post_module
from llamafactory_obs.alerts import sender as sender_module
from llamafactory_obs.alerts.options import parse_alerts
from llamafactory_obs.alerts.post import Post
from llamafactory_obs.record.schema import UNSENT

TOKEN = "Secret0123456789token"
EVENT = {"step": 1, "kind": "alert", "level": "error", "name": "x", "title": "spike", "text": "t", "evidence": {}}


@pytest.fixture
def serve(monkeypatch):
    """`serve(answer)` -> the address of a server that calls `answer(connection)`, and the times of its requests."""
    monkeypatch.setattr(sender_module, "_FIRST_S", 0.05)
    servers = []

    def start(answer):
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)
        times = []

        def one(connection):
            with connection:
                try:
                    connection.recv(1 << 20)
                    times.append(time.monotonic())
                    answer(connection)
                except OSError:  # the sender has hung up
                    pass

        def accept():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}/hook?key={TOKEN}", times

    yield start
    for server in servers:
        server.close()


def _post(folder, address: str, kind: str = "json", scheme: str = "http") -> Post:
    folder.mkdir(exist_ok=True)
    post = Post(folder, parse_alerts({"webhook": {"url": f"{scheme}://{address}", "kind": kind}}), "run")
    post.send({**EVENT, "time": time.time()})
    return post


def _reply(connection, status: str, body: bytes, *headers: str) -> None:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode() + body)


def test_an_answer_without_end_is_not_kept(serve, tmp_path):
    def answer(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n")
        for _ in range(64):
            connection.sendall(b"a" * (1 << 20))

    address, _ = serve(answer)
    tracemalloc.start()
    try:
        _post(tmp_path, address).flush(30)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not (tmp_path / UNSENT).exists() and peak < 16 << 20  # the server's own megabytes count as well


def test_an_answer_drop_by_drop_holds_nothing_up(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(sender_module, "_ANSWER_S", 0.3)

    def answer(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(1200):
            connection.sendall(b"a")
            time.sleep(0.05)

    address, _ = serve(answer)
    post, start = _post(tmp_path, address), time.monotonic()
    post.flush(90)
    assert time.monotonic() - start < 30 and not (tmp_path / UNSENT).exists()


@pytest.mark.parametrize("room", [380, 395, 0])
def test_an_address_that_is_quoted_is_hidden_also_where_the_quote_is_cut(serve, tmp_path, room):
    address, _ = serve(lambda connection: _reply(connection, "400 Bad Request", b"x" * room + TOKEN.encode()))
    post = _post(tmp_path, address)
    post.flush(30)
    (said,) = post.news()
    assert "refused a message" in said and TOKEN[:8] not in said


@pytest.mark.parametrize("wait", ["0", "-5"])
def test_try_again_at_once_is_not_taken_at_its_word(serve, tmp_path, monkeypatch, wait):
    monkeypatch.setattr(sender_module, "_FIRST_S", 1.0)
    address, times = serve(lambda one: _reply(one, "429 Too Many Requests", b"", f"Retry-After: {wait}"))
    _post(tmp_path, address).flush(2.5)
    assert 1 <= len(times) <= 4


def test_what_is_behind_a_failure_is_said(serve, tmp_path):
    address, _ = serve(lambda connection: connection.sendall(b"no TLS here"))
    post = _post(tmp_path, address, scheme="https")
    said, until = [], time.monotonic() + 40
    while not said and time.monotonic() < until:
        time.sleep(0.05)
        said = list(post.news())
    assert said and "ConnectError, SSLError" in said[0] and TOKEN not in said[0]


@pytest.mark.parametrize(("count", "said"), [(1, "1 webhook message is not sent"), (3, "3 webhook messages are not")])
def test_the_end_says_what_is_left_unsent_and_when_it_goes(serve, tmp_path, monkeypatch, count, said):
    monkeypatch.setattr(post_module, "AT_END_S", 0.3)
    address, _ = serve(lambda connection: _reply(connection, "503 Service Unavailable", b""))
    post = _post(tmp_path, address)
    for step in range(2, count + 1):
        post.send({**EVENT, "step": step, "time": time.time()})
    post.at_end()
    last = list(post.news())[-1]
    assert last.startswith(said) and f"obs/{UNSENT}" in last and "next start" in last
    monkeypatch.setattr(post_module, "AT_END_S", 30.0)
    good, _ = serve(lambda connection: _reply(connection, "200 OK", b""))
    calm = _post(tmp_path / "calm", good)
    calm.at_end()
    assert list(calm.news()) == []


def test_a_quoted_text_cannot_move_the_cursor(capsys):
    pytest.importorskip("tqdm")
    from llamafactory_obs.callbacks.console import Console

    Console(enabled=True).line("said \x1b[2J\r\x07: \u8fd4\u56de", "warn")
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\r" not in out and out.endswith("said  [2J  : \u8fd4\u56de\n")
