"""Who gets in, what is never read, and how the verb begins and ends."""

import json
import os
import re

import pytest
from board_server import Board
from page_folder import full, probe, record, row

from llamafactory_obs.board.access import Access
from llamafactory_obs.board.page import language_of

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("board") / "run"
    full(folder)
    return folder


@pytest.fixture(scope="module")
def board(folder):
    with Board(folder) as board:
        yield board


@pytest.fixture(scope="module")
def locked(folder):
    with Board(folder, token=TOKEN) as board:
        yield board


# ---- without a token -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "localhost:9000", "[::1]:9", "LocalHost.", "127.8.9.1:1"])
def test_the_names_of_this_machine_are_answered(board, host):
    assert board.get("/", Host=host)[0] == 200
    assert board.get("/api/state", Host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "[::1",
        "a@localhost",
        "10.0.0.1",
        "127.999.1.1",
        "127.1",
        "localhost..",
        "localhost, evil.example",
        "0.0.0.0",
        "localhost:1:2",
    ],
)
def test_another_name_is_refused(board, host):
    for path in ("/", "/api/state", "/board.js"):
        status, _, body = board.get(path, Host=host)
        assert status == 403 and b"train" not in body
    assert b" 403 " in board.raw(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"), "and no name at all"


@pytest.mark.parametrize("names", [("localhost", "evil.example"), ("evil.example", "localhost")])
def test_each_name_in_a_request_must_be_ours(board, names):
    heads = "".join(f"Host: {name}\r\n" for name in names)
    for request in (f"GET / HTTP/1.1\r\n{heads}", f"GET http://{names[0]}/ HTTP/1.1\r\nHost: {names[1]}\r\n"):
        assert b" 403 " in board.raw(f"{request}Connection: close\r\n\r\n".encode())
    assert b" 200 " in board.raw(b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "<script>"])
def test_there_is_only_get_and_head(board, method):
    answer = board.raw(f"{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 405 ") and b"Allow: GET, HEAD" in answer and b"<script>" not in answer


def test_head_is_get_without_its_body(board):
    for path in ("/", "/board.js", "/api/state", "/none"):
        status, headers, body = board.get(path)
        assert board.get(path, method="HEAD")[0] == status and body
        assert board.get(path, method="HEAD")[2] == b""
        assert headers["content-length"] == str(len(body))


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/obs/steps.jsonl",
        "/board.py",
        "/page",
        "/api/",
        "/api/state/..",
        "/api/probe/../../x",
        "/api/probe/zzzzzzzzzzzz/1",
        "/board.js/",
        "/.",
        "/static/",
        "/board.js%00",
    ],
)
def test_no_path_leads_to_a_file(board, path):
    status, _, body = board.get(path)
    assert status == 404 and json.loads(body) == {"error": "not found"}


@pytest.mark.parametrize(
    "query", ["since=-1", "since=x", "runs=../..", "runs=<b>", "have=%00", "since=" + "9" * 99, "&".join("a" * 40)]
)
def test_a_wrong_question_is_refused(board, query):
    assert board.get(f"/api/state?{query}")[0] == 400


def test_rubbish_does_not_end_it(board):
    for rubbish in (
        b"\x00\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"A" * 70000,
    ):
        board.raw(rubbish)
    hidden = (
        b"GET /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    assert board.raw(hidden).count(b"HTTP/1.1 ") == 1, "a body is no second request"
    assert board.get("/")[0] == 200


def test_what_every_answer_carries(board):
    for path in ("/", "/board.js", "/page.css", "/api/state", "/none"):
        _, headers, _ = board.get(path)
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers and "python" not in headers["server"].lower()
    page = board.get("/")[2].decode()
    assert not re.search(r"https?://|style=|\son\w+=", page), "nothing from outside, nothing inline"
    for name in re.findall(r'(?:src|href)="([a-z.]+\.(?:js|css))"', page):
        assert board.get(f"/{name}")[0] == 200
    modules = re.findall(r'from "\./(\w+\.js)"', board.get("/board.js")[2].decode())
    assert modules and all(board.get(f"/{name}")[0] == 200 for name in modules)


def test_a_file_that_the_browser_has_is_not_sent_again(board):
    tag = board.get("/board.js")[1]["etag"]
    status, headers, body = board.get("/board.js", If_None_Match=tag)
    assert (status, body) == (304, b"") and headers["etag"] == tag
    assert board.get("/board.js", If_None_Match='"other"')[0] == 200


def test_long_answers_are_compressed_where_that_is_understood(board):
    import gzip

    plain = board.get("/api/state")
    packed = board.get("/api/state", Accept_Encoding="gzip")
    for accepted in ("gzip;q=0", "gzip; q=0.0, br", "xgzip", "gzip;q=0.000"):
        assert "content-encoding" not in board.get("/api/state", Accept_Encoding=accepted)[1], accepted
    assert board.get("/api/state", Accept_Encoding="br, gzip;q=0.8")[1]["content-encoding"] == "gzip"
    assert "content-encoding" not in plain[1] and packed[1]["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed[2]))["runs"] == json.loads(plain[2])["runs"]


@pytest.mark.parametrize(
    ("asked", "accepted", "variable", "want"),
    [
        (None, "zh-CN,zh;q=0.9,en;q=0.8", None, "zh"),
        (None, "en-GB,zh;q=0.9", None, "en"),
        (None, "fr,zh;q=0.5,en;q=0.7", None, "en"),
        (None, "zh;q=0,en;q=0.1", None, "en"),
        (None, "fr", None, "en"),
        ("zh", "en", None, "zh"),
        ("EN", "zh", "zh", "en"),
        ("fr", "zh", None, "zh"),
        (None, "en", "zh", "zh"),
        (None, ";;;q=q,\x00", None, "en"),
    ],
)
def test_the_language(board, monkeypatch, asked, accepted, variable, want):
    for name in ("LLAMAFACTORY_OBS_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", variable)
    assert language_of(asked, accepted) == want


def test_the_page_is_in_its_language(board):
    assert (
        '<html lang="zh-CN">' in board.get("/?lang=zh")[2].decode() and "训练看板" in board.get("/?lang=zh")[2].decode()
    )
    assert '<html lang="en">' in board.get("/?lang=en")[2].decode()


# ---- with a token ----------------------------------------------------------------------------------------------------


def test_nothing_is_shown_without_the_token(locked):
    for path in ("/", "/api/state", "/board.js", "/none"):
        assert locked.get(path)[0] == 401
        for wrong in ("x", "", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "%ff"):
            assert locked.get(f"{path}?token={wrong}")[0] == 403, wrong
        assert locked.get(path, Cookie=f"{locked.access.cookie(locked.port)[0]}=wrong")[0] == 403
        assert locked.get(path, Cookie="\x01;;;=")[0] in (401, 403)


def test_the_token_becomes_a_cookie_and_leaves_the_address(locked):
    status, headers, body = locked.get(f"/?lang=zh&token={TOKEN}")
    assert status == 303 and headers["location"] == "./?lang=zh" and TOKEN not in str(headers) and body == b""
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
    pair = cookie.split(";")[0]
    for path in ("/", "/api/state", "/board.js"):
        assert locked.get(path, Cookie=pair)[0] == 200
        assert locked.get(path, Cookie=pair, Host="any.name.example")[0] == 200, "a proxy may have any name"
    assert locked.get("/api/state", Cookie=pair.replace(f"_{locked.port}", "_1"))[0] == 401, "of another board"
    name = pair.partition("=")[0]
    for others in (
        "a=1",
        'a={"x": [1], "y": "z"}',
        "no-equals-sign",
        "a[b]=1",
        "path=/; expires=1",
        "\xe4=\xf6",
        f"{name}=x",
    ):
        assert locked.get("/api/state", Cookie=f"{others}; {pair}")[0] == 200, others
        assert locked.get("/api/state", Cookie=f"{pair}; {others}")[0] == 200, others
        assert locked.get("/api/state", Cookie=others)[0] in (401, 403)
    assert locked.get(f"//evil.example/?token={TOKEN}")[0] in (303, 404)
    assert locked.get(f"//evil.example/?token={TOKEN}")[1].get("location", "./") == "./"


def test_off_this_machine_a_token_is_always_asked_for():
    for host in ("0.0.0.0", "::", "192.168.1.5", "gpu-box"):
        made = Access.for_host(host, None).token
        assert made and len(made) >= 32 and made != Access.for_host(host, None).token
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        assert Access.for_host(host, None).token is None
    assert TOKEN not in repr(Access.for_host("0.0.0.0", TOKEN))


def test_two_machines_behind_tunnels_do_not_share_a_cookie(monkeypatch):
    access, names = Access(TOKEN), set()
    for machine in ("gpu-1", "gpu-2"):
        monkeypatch.setattr("socket.gethostname", lambda machine=machine: machine)
        names |= {access.cookie(8321)[0], access.cookie(8322)[0]}
    assert len(names) == 4


# ---- links and pipes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["steps.jsonl", "events.jsonl", "probes.jsonl", "run.json", "layers.jsonl", "samples.jsonl"]
)
def test_a_link_that_leads_out_is_not_followed(tmp_path, name):
    secret = tmp_path / "secret"
    record(secret, steps=[row(1, **{"train/loss": 0.123454321})], probes=[probe(1, "hidden-word", True, "hidden-word")])
    run = tmp_path / "saves" / "run"
    full(run)
    target = secret / "obs" / ("probes.jsonl" if name == "probes.jsonl" else "steps.jsonl")
    (run / "obs" / name).unlink(missing_ok=True)
    (run / "obs" / name).symlink_to(target)
    with Board(tmp_path / "saves") as board:
        state = board.state()
        (parts,) = state["runs"].values()
        assert parts == {"head": {"refused": f"obs/{name}"}}
        assert board.get(f"/api/probe/{next(iter(state['runs']))}/0")[0] == 404
        assert "findings" not in parts and not board.feed._examiner._seen, "nor handed to diagnose"


@pytest.mark.parametrize(
    "name", ["trainer_log.jsonl", "train.log", "other.yaml", "checkpoint-7", "checkpoint-8/trainer_state.json"]
)
def test_nor_is_one_that_only_diagnose_would_follow(tmp_path, name):
    from llamafactory_obs.board.places import outside

    run = tmp_path / "run"
    full(run)
    (tmp_path / "secret").mkdir()
    (run / "checkpoint-9").mkdir()
    (run / "model.bin").symlink_to(tmp_path / "secret")  # nobody reads that
    assert outside(run) == ""
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(tmp_path / "secret")
    assert outside(run) == name.split("/")[0]


def test_a_link_within_the_folder_is_fine(tmp_path):
    run = tmp_path / "run"
    full(run)
    (run / "obs" / "steps.jsonl").rename(run / "kept.jsonl")
    (run / "obs" / "steps.jsonl").symlink_to("../kept.jsonl")
    (tmp_path / "link").symlink_to(run)
    with Board(tmp_path / "link") as board:  # the folder that was named may be a link itself
        (parts,) = board.state()["runs"].values()
        assert parts["head"]["step"] == 60


def test_a_linked_run_of_another_place_is_no_run_of_this_folder(tmp_path):
    full(tmp_path / "elsewhere")
    (tmp_path / "saves").mkdir()
    (tmp_path / "saves" / "run").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "saves" / "loop").symlink_to(tmp_path / "saves")
    with Board(tmp_path / "saves") as board:
        assert board.state()["runs"] == {}


def test_a_pipe_is_not_waited_for(tmp_path):
    full(tmp_path / "run")
    (tmp_path / "run" / "obs" / "probes.jsonl").unlink()
    os.mkfifo(tmp_path / "run" / "obs" / "probes.jsonl")
    with Board(tmp_path / "run") as board:
        (parts,) = board.state()["runs"].values()
        assert parts["head"] == {"refused": "obs/probes.jsonl"}
        (tmp_path / "run" / "obs" / "probes.jsonl").unlink()
        state = board.state()
        (name,) = state["runs"]
        later = board.wait(lambda state: state["runs"], since=state["tick"], board=state["board"], have=name)
        assert later["runs"][name]["head"]["step"] == 60, "once it is gone the run is shown"


def test_nothing_is_written(tmp_path):
    full(tmp_path / "run")

    def seen():
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in [tmp_path, *tmp_path.rglob("*")]}

    before = seen()
    with Board(tmp_path / "run") as board:
        board.wait(lambda state: any("findings" in parts for parts in state["runs"].values()), seconds=120)
    assert seen() == before
