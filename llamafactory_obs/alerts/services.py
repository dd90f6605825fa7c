"""How each service wants a message, and what its answer means.

Slack incoming webhooks, custom bots of Feishu and Lark, DingTalk robots, WeCom group robots, and plain JSON for all
others. Three of them answer HTTP 200 to a message that they refuse, with a code in the body.
"""

import base64
import hashlib
import hmac
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Literal
from urllib.parse import urlencode

from .message import cut, fit, gravest
from .options import Kind, Webhook

#: sent; again later; again, but not before `wait_s`; this message never; this address never
Outcome = Literal["sent", "retry", "limited", "refused", "off"]


@dataclass(frozen=True)
class Answer:
    """What became of a message.

    outcome  see `Outcome`
    why      a few words of the service, for the record
    wait_s   how long a limited sender is asked to wait; None where the service does not say
    """

    outcome: Outcome
    why: str = ""
    wait_s: float | None = None


@dataclass(frozen=True)
class Request:
    """One HTTP POST: `count` events in `content`."""

    url: str
    content: bytes
    headers: dict[str, str]
    count: int


#: bytes of text in a message. Slack cuts at 40,000 characters and asks for 4,000; Feishu takes requests of 20 KB,
#: DingTalk of 20,000 bytes, WeCom 4,096 bytes of markdown. Some room is left for what stands around the text.
_TEXT_BYTES: dict[Kind, int] = {"slack": 3500, "feishu": 12000, "dingtalk": 12000, "wecom": 3600}
_TITLE_BYTES = 200
_JSON_BYTES = 256 << 10
_JSON_EVENTS = 100

#: messages in a minute: documented for Slack (one a second), Feishu (100), DingTalk and WeCom (20); one less is taken
PER_MINUTE: dict[Kind, int] = {"json": 600, "slack": 59, "feishu": 99, "dingtalk": 19, "wecom": 19}

#: seconds to wait where a service is limiting and does not say how long (DingTalk then refuses for up to 10 minutes)
WAIT_S: dict[Kind, float] = {"json": 10.0, "slack": 10.0, "feishu": 10.0, "dingtalk": 60.0, "wecom": 60.0}

_COLOURS = {"error": "red", "warn": "orange", "info": "blue", "over": "green"}

#: codes in the body of an HTTP 200: too many messages; the address, its signature or its rules are wrong
_LIMITED = {"feishu": (11232,), "dingtalk": (130101, 410100, 90018, 90030), "wecom": (45009, 45033)}
_OFF = {"feishu": (19001, 19021, 19022, 19024), "dingtalk": (300001, 300005, 310000), "wecom": (93000, 93004, 93008)}


def request(webhook: Webhook, title: str, events: Sequence[dict], now: float) -> Request:
    """One message with as many of the events as it can hold, the oldest first.

    Args:
        title: what the run is called.
        now: Unix seconds.
    """
    if webhook.kind == "json":
        return _json(webhook, title, events, now)
    blocks, count = fit(events, now, _TEXT_BYTES[webhook.kind])
    level = gravest(events[:count])
    title = cut(title, _TITLE_BYTES)
    name = f"{title}: {count} alerts" if count > 1 else title
    url, body = webhook.url, {}
    if webhook.kind == "slack":
        body = {"text": "\n\n".join([f"*{_slack(name)}*", *map(_slack, blocks)])}
    elif webhook.kind == "feishu":
        body = _feishu_card(name, "\n\n".join(blocks), level)
        if webhook.secret:
            stamp = str(int(now))
            body |= {"timestamp": stamp, "sign": _sign(f"{stamp}\n{webhook.secret}", "")}
    elif webhook.kind == "dingtalk":
        text = "\n\n".join([f"#### {_no_tags(name)}", *(_no_tags(block).replace("\n", "  \n") for block in blocks)])
        body = {"msgtype": "markdown", "markdown": {"title": name, "text": text}}
        if webhook.secret:
            stamp = str(int(now * 1000))
            signed = {"timestamp": stamp, "sign": _sign(webhook.secret, f"{stamp}\n{webhook.secret}")}
            url += ("&" if "?" in url else "?") + urlencode(signed)
    else:
        text = "\n\n".join([f"**{_no_tags(name)}**", *map(_no_tags, blocks)])
        body = {"msgtype": "markdown", "markdown": {"content": cut(text, 4096)}}
    return Request(url, _encode(body), {"Content-Type": "application/json; charset=utf-8"}, count)


def answer(webhook: Webhook, status: int, headers: dict[str, str], content: bytes) -> Answer:
    """What the service's HTTP answer means.

    Args:
        headers: names in lower case.
    """
    text = " ".join(content[:400].decode("utf-8", "replace").split())
    why = f"HTTP {status}" + (f": {text}" if text else "")
    if status == 429:
        return Answer("limited", why, retry_after(headers.get("retry-after")))
    if status in (408, 425) or status >= 500:
        wait = retry_after(headers.get("retry-after"))
        return Answer("retry" if wait is None else "limited", why, wait)
    if 300 <= status < 400:
        if webhook.kind == "dingtalk":  # what it does with a robot that has sent far too much
            return Answer("limited", why)
        return Answer("off", f"HTTP {status}: the address has moved; put the new one")
    if status in (401, 403, 404, 405, 407, 410):
        return Answer("off", why)
    if status >= 400:
        return Answer("off" if "invalid_token" in text or "no_service" in text else "refused", why)
    return _code(webhook, content, text) if webhook.kind in _LIMITED else Answer("sent")


def retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date; None where it is neither."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return min(max(seconds, 0.0), 3600.0) if math.isfinite(seconds) else None


def _code(webhook: Webhook, content: bytes, text: str) -> Answer:
    """The code in the body of an HTTP 200: 0 is good."""
    try:
        said = json.loads(content)
        code = next(said[name] for name in ("errcode", "code", "StatusCode") if name in said)
        code = int(code)
    except (ValueError, TypeError, StopIteration):
        return Answer("retry", f"not the service's own answer: {text}")  # a proxy's page
    words = " ".join(str(said.get(name, "")) for name in ("errmsg", "msg", "StatusMessage")).strip()
    why = f"code {code}: {words}"
    if code == 0:
        return Answer("sent")
    if code in _LIMITED[webhook.kind] or any(word in words.lower() for word in ("too fast", "frequency limited")):
        return Answer("limited", why)
    if code == -1:  # the service is busy
        return Answer("retry", why)
    return Answer("off" if code in _OFF[webhook.kind] else "refused", why)


def _json(webhook: Webhook, title: str, events: Sequence[dict], now: float) -> Request:
    """Our own format: `{"run", "sent_at", "events": [...]}`, each event a row of `events.jsonl` and its `id`."""
    taken, size = [], 0
    for event in events[:_JSON_EVENTS]:
        raw = _encode(event)
        if len(raw) > _JSON_BYTES:
            event = {key: value for key, value in event.items() if key != "evidence"} | {"cut": True}
            raw = _encode(event)
        if taken and size + len(raw) > _JSON_BYTES:
            break
        taken.append(event)
        size += len(raw)
    content = _encode({"run": title, "sent_at": now, "events": taken})
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if webhook.secret:
        stamp = str(int(now))
        mac = hmac.new(webhook.secret.encode(), stamp.encode() + b"." + content, hashlib.sha256)
        headers |= {"X-Obs-Timestamp": stamp, "X-Obs-Signature": f"sha256={mac.hexdigest()}"}
    return Request(webhook.url, content, headers, len(taken))


def _feishu_card(title: str, text: str, level: str) -> dict:
    return {
        "msg_type": "interactive",
        "card": {
            "config": {"wide_screen_mode": True},
            "header": {"title": {"tag": "plain_text", "content": title}, "template": _COLOURS[level]},
            "elements": [{"tag": "div", "text": {"tag": "plain_text", "content": text}}],
        },
    }


def _sign(key: str, text: str) -> str:
    """HMAC-SHA256 in base64. (Feishu's custom bots sign an empty text, with the time and the secret as the key.)"""
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


def _slack(text: str) -> str:
    """Slack's three characters of control: nobody is called with @ and no link is made."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _no_tags(text: str) -> str:
    """A blank of no width keeps `<@name>` and `<font>` from being read as a tag."""
    return text.replace("<", "<\u200b")


def _encode(value: dict) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
