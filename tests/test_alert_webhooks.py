"""Webhooks against a real HTTP server that plays each service: format, signature, size, refusal, limits, retries."""

import atexit
import json
import logging
import statistics
import threading
import time

import pytest
from webhook_server import SECRET, Service

from llamafactory_obs.alerts import sender as sender_module
from llamafactory_obs.alerts.message import cut, duration
from llamafactory_obs.alerts.options import AlertOptions, Webhook
from llamafactory_obs.alerts.post import Post
from llamafactory_obs.alerts.services import request, retry_after
from llamafactory_obs.record.schema import UNSENT

KINDS = ("json", "slack", "feishu", "dingtalk", "wecom")
#: Chinese, an emoji, a mark-up that would call somebody or be dropped, and what JSON escapes
TEXT = '训练发散：第 812 步 <@all> <!channel> & "loss" 7.25 \\ 回到 checkpoint-800 🚨'


def event(step=812, level="error", state="raised", text=TEXT, **more):
    life = {"id": "grad_norm_spike/spike", "state": state, "level": level, "since": 800, "count": 3}
    life |= {"open": state != "resolved", "told": True}
    row = {"step": step, "time": time.time(), "kind": "alert", "level": level, "name": "grad_norm_spike"}
    row |= {"title": "spike", "text": text, "evidence": {"norm": "nan"}, "action": "kill", "suggest": {}, "alert": life}
    return row | more


@pytest.fixture
def serve():
    """`serve(kind, **options)` starts a service."""
    open_ones = []

    def start(kind="json", **options):
        open_ones.append(Service(kind, **options))
        return open_ones[-1]

    yield start
    for service in open_ones:
        service.close()


@pytest.fixture
def mail(tmp_path, monkeypatch):
    """`mail(service, **options)` -> the Post that sends to it, without long waits."""
    monkeypatch.setattr(sender_module, "_FIRST_S", 0.03)
    for kind in KINDS:
        monkeypatch.setitem(sender_module.WAIT_S, kind, 0.1)

    made = []

    def make(service, **options):
        webhook = Webhook(service.url, service.kind, service.secret, **options)
        made.append(Post(tmp_path, AlertOptions(webhooks=(webhook,)), "qwen3-lora"))
        return made[-1]

    yield make
    for post in made:
        atexit.unregister(post._at_exit)


def unsent(folder) -> int:
    file = folder / UNSENT
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_each_service_takes_it(serve, mail, tmp_path, kind, signed):
    if signed and kind in ("slack", "wecom"):
        pytest.skip("checks no signature")
    service = serve(kind, secret=SECRET if signed else None)
    post = mail(service)
    post.send(event())
    post.flush(30)
    [text] = service.texts()
    assert "训练发散：第 812 步" in text and "🚨" in text and "checkpoint-800" in text
    assert unsent(tmp_path) == 0 and list(post.news()) == []
    if kind == "json":
        [message] = service.taken
        [told] = message["events"]
        assert message["run"] == "qwen3-lora" and abs(message["sent_at"] - time.time()) < 5
        assert told["alert"]["since"] == 800 and told["evidence"] == {"norm": "nan"} and len(told["id"]) == 16
    else:
        assert "[ALERT] step 812 grad_norm_spike: spike" in text and "qwen3-lora" in text
        assert "since step 800, seen 3 times, " in text and "late" not in text
        plain = kind == "feishu" and service.taken[0]["card"]["elements"][0]["text"]["tag"] == "plain_text"
        assert plain or ("<@" not in text and "<!" not in text), "a text calls nobody"


@pytest.mark.parametrize("kind", ["json", "feishu", "dingtalk"])
def test_a_wrong_secret_is_refused_and_named_once(serve, mail, tmp_path, kind):
    service = serve(kind, secret="another one")
    post = mail(service)
    service.secret = SECRET
    for step in range(3):
        post.send(event(step))
    post.flush(30)
    time.sleep(0.2)
    [said] = post.news()
    assert said.startswith(f"{kind} webhook is off for this run (") and "sign" in said and "secret" in said
    assert service.taken == [] and len(service.times) == 1, "no second try"
    assert unsent(tmp_path) == 3, "for the next start, with the right secret"


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_fails_first_gets_it_later_and_once(serve, mail, tmp_path, kind):
    service = serve(kind)
    service.script.extend([(500, {}, b"oops"), (502, {}, b"<html>"), "drop"])
    post = mail(service)
    post.send(event())
    post.flush(30)
    assert len(service.taken) == 1 and len(service.times) == 4 and unsent(tmp_path) == 0
    waits = [b - a for a, b in zip(service.times, service.times[1:], strict=False)]
    assert waits[0] < waits[2], waits
    [said] = post.news()
    assert "3 tries failed" in said


LIMITS = {
    "json": (429, {"Retry-After": "1"}, b""),
    "slack": (429, {"Retry-After": "1"}, b"rate_limited"),
    "feishu": (200, {}, b'{"code":11232,"data":{},"msg":"frequency limited psm[lark.oapi.app_platform_runtime]"}'),
    "dingtalk": (200, {}, b'{"errcode":130101,"errmsg":"send too fast, exceed 20 times per minute"}'),
    "wecom": (200, {}, b'{"errcode":45009,"errmsg":"api freq out of limit"}'),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_is_waited_for_and_what_waits_becomes_one_message(serve, mail, tmp_path, monkeypatch, kind):
    monkeypatch.setitem(sender_module.WAIT_S, kind, 1.0)
    service = serve(kind)
    service.script.append(LIMITS[kind])
    post = mail(service)
    for step in (1, 2, 3):
        post.send(event(step, text=f"what happened at {step}"))
        time.sleep(0.1)
    post.flush(30)
    assert len(service.times) == 2 and service.times[1] - service.times[0] >= 0.95
    [text] = service.texts()
    assert [f"what happened at {step}" in text for step in (1, 2, 3)] == [True] * 3
    assert text.index("at 1") < text.index("at 3") and unsent(tmp_path) == 0


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("json", (400, {}, b"bad")),
        ("slack", (400, {}, b"invalid_payload")),
        ("feishu", (200, {}, b'{"code":9499,"msg":"Bad Request"}')),
        ("dingtalk", (200, {}, b'{"errcode":40035,"errmsg":"bad json"}')),
        ("wecom", (200, {}, b'{"errcode":40008,"errmsg":"invalid message type"}')),
    ],
)
def test_a_refused_message_is_final_and_the_next_one_still_goes(serve, mail, tmp_path, kind, answer):
    service = serve(kind)
    service.script.extend([answer, answer])
    post = mail(service)
    for step in (1, 2):
        post.send(event(step))
        post.flush(30)
    assert service.taken == [] and len(service.times) == 2
    assert [("refused a message" in said) for said in post.news()] == [True], "named once"
    post.send(event(3))
    post.flush(30)
    assert len(service.taken) == 1 and unsent(tmp_path) == 0


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("json", (404, {}, b"")),
        ("json", (301, {"Location": "https://elsewhere/"}, b"")),
        ("slack", (403, {}, b"invalid_token")),
        ("slack", (404, {}, b"no_service")),
        ("slack", (410, {}, b"channel_is_archived")),
        ("feishu", (200, {}, b'{"code":19024,"msg":"Key Words Not Found"}')),
        ("dingtalk", (200, {}, b'{"errcode":300001,"errmsg":"token is not exist"}')),
        ("wecom", (200, {}, b'{"errcode":93000,"errmsg":"invalid webhook url"}')),
    ],
)
def test_an_address_that_takes_nothing_is_given_up(serve, mail, tmp_path, kind, answer):
    service = serve(kind)
    service.script.append(answer)
    post = mail(service)
    post.send(event(1))
    post.flush(30)
    post.send(event(2))
    time.sleep(0.1)
    assert len(service.times) == 1 and unsent(tmp_path) == 2
    [said] = post.news()
    assert "is off for this run" in said and service.url not in said


def test_a_page_of_a_proxy_is_no_answer_of_the_service(serve, mail):
    service = serve("feishu")
    service.script.append((200, {"Content-Type": "text/html"}, b"<html>please log in</html>"))
    post = mail(service)
    post.send(event())
    post.flush(30)
    assert len(service.taken) == 1 and len(service.times) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_sizes(serve, mail, tmp_path, kind):
    """40 long Chinese alerts: several messages, each within the service's limit, every alert in one of them."""
    service = serve(kind)
    service.script.append((503, {}, b""))
    post = mail(service)
    for step in range(40):
        post.send(event(step, text=f"第{step:03d}步：" + "梯度范数持续上升，请降低学习率。" * 12))
    post.send(event(99, text="长" * 30000))
    post.flush(30)
    texts = service.texts()
    assert all(sum(f"第{step:03d}步" in text for text in texts) == 1 for step in range(40)), "each once"
    assert any("长" * 1000 in text for text in texts) and unsent(tmp_path) == 0
    assert "�" not in "".join(texts)


def test_the_pace_of_a_service_is_kept(serve, mail, monkeypatch):
    monkeypatch.setitem(sender_module.PER_MINUTE, "dingtalk", 3)
    service = serve("dingtalk")
    post = mail(service)
    for step in range(3):
        post.send(event(step))
        post.flush(30)
    post.send(event(4))
    post.flush(0.5)
    assert len(service.times) == 3, "the fourth waits for the minute to be over"


def test_levels_and_endings(serve, mail):
    service = serve()
    post = mail(service, min_level="error")
    post.send(event(1, level="warn"))
    post.send(event(2, level="info", state="resolved", alert={"state": "resolved", "level": "warn"}))
    post.send(
        event(3, level="info", alert={"state": "resolved", "level": "error", "since": 1, "count": 1}, text="over")
    )
    post.flush(30)
    assert service.texts() == ["over"], "the end of an error is as grave as the error"


def test_a_late_message_says_so():
    webhook = Webhook("https://example.org/h", "slack")
    old = event() | {"time": time.time() - 3 * 3600}
    [text] = json.loads(request(webhook, "run", [old], time.time()).content).values()
    assert "sent 3.0 h late" in text
    assert [duration(s) for s in (5, 600, 7300, 400000)] == ["5 s", "10 min", "2.0 h", "4.6 days"]
    resolved = event(level="info", state="resolved")
    assert "[OVER]" in json.loads(request(webhook, "run", [resolved], time.time()).content)["text"]


def test_cutting_never_splits_a_character():
    for limit in range(4, 40):
        short = cut("训练发散🚨" * 10, limit)
        assert len(short.encode()) <= limit and short.endswith(" …")
    assert cut("short", 100) == "short"


def test_retry_after():
    assert retry_after("7") == 7 and retry_after("1e9") == 3600 and retry_after("-3") == 0
    assert retry_after(None) is None and retry_after("soon") is None and retry_after("nan") is None
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30))
    assert 27 < retry_after(date) <= 30


def test_the_address_is_logged_nowhere(serve, mail, caplog):
    service = serve()
    service.script.append((500, {}, b""))
    post = mail(service)
    with caplog.at_level(logging.DEBUG):
        post.send(event())
        post.flush(30)
        import httpx

        httpx.get(service.url.partition("?")[0] + "?of=somebody-else")
    assert "fedcba9876543210" not in caplog.text
    assert "somebody-else" in caplog.text, "others' lines stay"


def test_what_finds_no_room_stays_in_the_file(serve, mail, tmp_path, monkeypatch):
    monkeypatch.setattr(sender_module, "ROOM", 5)
    service = serve()
    service.script.append("hang")
    post = mail(service)
    for step in range(8):
        post.send(event(step))
    assert unsent(tmp_path) == 8
    assert [said for said in post.news()] == ["json webhook: 5 messages wait; more go out at the next start"]


def test_a_hanging_server_delays_nobody(serve, mail, tmp_path):
    service = serve()
    service.script.append("hang")
    post = mail(service)
    took = []
    for step in range(100):
        start = time.perf_counter()
        post.send(event(step))
        took.append(time.perf_counter() - start)
    assert statistics.median(took) < 1e-2
    start = time.perf_counter()
    post.flush(0.3)
    assert 0.2 < time.perf_counter() - start < 20 and unsent(tmp_path) == 100
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "llamafactory-obs-webhook")
