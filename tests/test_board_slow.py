"""Visitors that are slow on purpose, too many of them, and files that are too large: the board stays there."""

import math
import socket
import threading
import time

import pytest
from board_server import Board
from page_folder import full

from llamafactory_obs.board import server as board_server
from llamafactory_obs.live import tail
from llamafactory_obs.live.tail import Tail


@pytest.fixture
def board(tmp_path):
    full(tmp_path / "run")
    with Board(tmp_path / "run") as board:
        yield board


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


def test_half_requests_do_not_keep_others_out(board, monkeypatch):
    monkeypatch.setattr(board_server, "_MOST_CONNECTIONS", 5)
    held = []
    for _ in range(12):
        held.append(socket.create_connection(("127.0.0.1", board.port), timeout=20))
        held[-1].sendall(b"GET / HTTP/1.1\r\nHost: local")
        time.sleep(0.02)
    assert board.get("/")[0] == 200 and board.get("/api/state")[0] == 200
    assert sum(map(is_open, held)) <= 5 and not is_open(held[0]), "the oldest have given way"
    for connection in held:
        connection.close()


def test_who_is_being_answered_does_not_give_way(board, monkeypatch):
    monkeypatch.setattr(board_server, "_MOST_CONNECTIONS", 1)
    asked, go = threading.Event(), threading.Event()

    def slow_answer(*_) -> bytes:
        asked.set()
        assert go.wait(20)
        return b"{}"

    monkeypatch.setattr(board.feed, "state", slow_answer)
    with socket.create_connection(("127.0.0.1", board.port), timeout=20) as first:
        first.sendall(b"GET /api/state HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert asked.wait(20)
        with socket.create_connection(("127.0.0.1", board.port), timeout=20) as second:
            assert second.recv(1) == b"", "turned away, for the only place is taken by an answer"
        go.set()
        assert first.recv(12) == b"HTTP/1.1 200", "who was being answered got the answer"
        while b"{}" not in first.recv(65536):
            pass
        until = time.monotonic() + 20
        while math.inf in board.server._open.values() and time.monotonic() < until:
            time.sleep(0.01)
        assert board.get("/")[0] == 200 and not is_open(first), "now it waits again, and gives way"


def test_a_request_that_comes_byte_by_byte_ends(board, monkeypatch):
    monkeypatch.setattr(board_server, "_LONGEST_WAIT", 1.0)
    with socket.create_connection(("127.0.0.1", board.port), timeout=20) as connection:
        begun = time.monotonic()
        while is_open(connection):
            try:
                connection.sendall(b"G")
            except OSError:
                break
            time.sleep(0.1)
            assert time.monotonic() - begun < 30
    assert time.monotonic() - begun > 0.9 and board.get("/")[0] == 200


def test_a_line_that_is_too_long_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tail, "_LONGEST_LINE", 1 << 20)
    file = tmp_path / "steps.jsonl"
    file.write_bytes(b'{"step": 1}\n')
    followed = Tail(file)

    def steps() -> list[int]:
        return [row["step"] for rows in followed.rows() for row in rows]

    assert steps() == [1]
    with file.open("ab") as handle:
        handle.write(bytes(3 << 20))  # zeros, as a machine leaves them that went away
    assert steps() == [] and followed.torn == 1
    with file.open("ab") as handle:
        handle.write(bytes(2 << 20) + b"\n" + b'{"step": 2}\n{"step": 3}\n')
    assert steps() == [2, 3] and followed.torn == 1 and not followed.replaced
    with file.open("ab") as handle:
        handle.write(b'{"step": 4}\n')
    assert steps() == [4]


def test_a_huge_file_without_a_line_costs_no_memory(tmp_path):
    import tracemalloc

    file = tmp_path / "steps.jsonl"
    with file.open("wb") as handle:
        handle.truncate(200 << 20)  # sparse
    followed = Tail(file)
    tracemalloc.start()
    assert list(followed.rows()) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20 and followed.torn == 1
