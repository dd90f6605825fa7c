"""`obs: {alerts: {...}}` in a run's YAML."""

import hashlib
import math
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, urlsplit

from ..detect.endings import LASTING, MOMENTS, RANK
from ..detect.finding import Level
from ..errors import ConfigError
from ..identity.redact import MIN_SECRET
from ..plugin.names import did_you_mean
from ..plugin.variables import expand

Kind = Literal["json", "slack", "feishu", "dingtalk", "wecom"]

#: host of a webhook's address -> what is behind it
_HOSTS: dict[str, Kind] = {
    "hooks.slack.com": "slack",
    "open.feishu.cn": "feishu",
    "open.larksuite.com": "feishu",
    "oapi.dingtalk.com": "dingtalk",
    "qyapi.weixin.qq.com": "wecom",
}
#: who checks a signature; to the others a secret would be of no use
_SIGNS = ("json", "feishu", "dingtalk")


@dataclass(frozen=True)
class Webhook:
    """One address that is told of alerts. Its `repr` shows neither the address nor the secret."""

    url: str = field(repr=False)
    kind: Kind = "json"
    secret: str | None = field(default=None, repr=False)
    """What messages are signed with: Feishu, DingTalk and our own JSON."""
    min_level: Level = "warn"
    """What is less grave is not sent."""
    title: str | None = None
    """What the run is called in the messages; None: its run_name, else the name of its output folder."""

    @property
    def key(self) -> str:
        """Names this address without showing it."""
        return f"{self.kind}:{hashlib.sha256(self.url.encode()).hexdigest()[:10]}"


@dataclass(frozen=True)
class AlertOptions:
    """When alerts are told, to whom, and which ones stop the run."""

    cooldown_steps: int = 50
    """Steps in which the same alert is not told again."""

    cooldown_s: float = 300.0
    """Seconds in which the same alert is not told again."""

    min_level: Level = "info"
    """What is less grave is recorded only."""

    stop_on: tuple[str, ...] = ()
    """Names of alerts, `callback/name`, or `error` for all errors: the run saves a checkpoint and stops."""

    webhooks: tuple[Webhook, ...] = ()

    hidden: frozenset[str] = field(default=frozenset(), repr=False)
    """Texts that must be shown nowhere: addresses, secrets, and what came from the environment."""

    def stops(self, name: str, title: str, level: Level) -> bool:
        """Does this alert stop the run?"""
        if level == "info" or not self.stop_on:
            return False
        return (
            title in self.stop_on or f"{name}/{title}" in self.stop_on or (level == "error" and "error" in self.stop_on)
        )


def parse_alerts(block: object) -> AlertOptions:
    """Read the block as it stands under `obs:`.

    Raises:
        ConfigError: not a mapping, an unknown key, a value out of range, or a `${VARIABLE}` that is not set.
    """
    if block is None:
        return AlertOptions()
    if not isinstance(block, dict):
        raise ConfigError(f"obs: alerts must be a mapping such as {{cooldown_s: 600}}, got {block!r}")
    _check_keys("obs: alerts", block, ("cooldown_steps", "cooldown_s", "min_level", "stop_on", "webhook"))
    found: set[str] = set()
    webhooks = _webhooks(block.get("webhook"), found)
    return AlertOptions(
        cooldown_steps=int(_number("cooldown_steps", block, whole=True)),
        cooldown_s=float(_number("cooldown_s", block)),
        min_level=_level("obs: alerts", block, "info"),
        stop_on=_stop_on(block.get("stop_on")),
        webhooks=webhooks,
        hidden=frozenset(found | {secret for webhook in webhooks for secret in secrets_of(webhook)}),
    )


def _check_keys(where: str, block: dict, known: tuple[str, ...]) -> None:
    for key in block:
        if key not in known:
            hint = f"{did_you_mean(str(key), known)} (known: {', '.join(known)})"
            raise ConfigError(f"{where}: unknown key {key!r}{hint}")


def _number(name: str, block: dict, whole: bool = False) -> float:
    value: Any = block.get(name, getattr(AlertOptions, name))
    right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right or value < 0 or not math.isfinite(value):
        what = "a whole number" if whole else "a number"
        raise ConfigError(f"obs: alerts: {name} must be {what} of 0 or more, got {value!r}")
    return value


def _level(where: str, block: dict, default: Level) -> Level:
    value = block.get("min_level", default)
    if not isinstance(value, str) or value not in RANK:
        raise ConfigError(f"{where}: min_level must be {', '.join(RANK)}, got {value!r}")
    return value


def _stop_on(value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"obs: alerts: stop_on must be a list of names such as [nan, stalled], got {value!r}")
    known = ["error", *LASTING, *sorted(MOMENTS)]
    for name in names:
        if name not in known and "/" not in name:  # another package's alert is named with its callback
            hint = did_you_mean(name, known) or " (those of your own callbacks: `callback/name`)"
            raise ConfigError(f"obs: alerts: stop_on: no alert is called {name!r}{hint}; names: docs/record.md")
    return tuple(names)


def _webhooks(value: object, found: set[str]) -> tuple[Webhook, ...]:
    if value is None:
        return ()
    several = isinstance(value, (list, tuple))
    made = []
    for number, one in enumerate(value if several else [value]):
        where = f"obs: alerts: webhook[{number}]" if several else "obs: alerts: webhook"
        made.append(_webhook(where, {"url": one} if isinstance(one, str) else one, found))
    return tuple(made)


def _webhook(where: str, block: object, found: set[str]) -> Webhook:
    if not isinstance(block, dict):
        raise ConfigError(f'{where} must be a mapping such as {{url: "${{HOOK_URL}}", kind: feishu}}')
    _check_keys(where, block, tuple(one.name for one in fields(Webhook)))
    block = expand(where, block, found)
    for name in ("url", "secret", "title"):
        if not isinstance(block.get(name), (str, type(None))):
            raise ConfigError(f"{where}: {name} must be text")
    url = (block.get("url") or "").strip()
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        right = parts.scheme in ("http", "https") and bool(host) and (parts.port or 1) > 0 and url.isprintable()
    except ValueError:
        right = False
    if not right or " " in url:  # what stands there may be a secret: it is not shown
        raise ConfigError(f"{where}: url must be an address that begins with https:// (or http://)")
    kind = block.get("kind") or "auto"
    if kind not in ("auto", *get_args(Kind)):
        hint = did_you_mean(str(kind), get_args(Kind))
        raise ConfigError(f"{where}: kind must be auto, {', '.join(get_args(Kind))}, got {kind!r}{hint}")
    kind = _HOSTS.get(host, "json") if kind == "auto" else kind
    secret = block.get("secret") or None
    if secret is not None and kind not in _SIGNS:
        raise ConfigError(f"{where}: {kind} checks no signature; remove `secret` (its address is the secret)")
    return Webhook(url, kind, secret, _level(where, block, "warn"), block.get("title") or None)


def secrets_of(webhook: Webhook) -> set[str]:
    """The address, the tokens in it, and the secret: an error text may quote any of them."""
    parts = urlsplit(webhook.url)
    words = [
        *parts.path.split("/"),
        *(value for _, value in parse_qsl(parts.query)),
        parts.username or "",
        parts.password or "",
    ]
    tokens = {word for word in words if len(word) >= 20 or (len(word) >= 12 and any(c.isdigit() for c in word))}
    whole = {webhook.url, webhook.url.partition("://")[2]}
    return {text for text in tokens | whole | {webhook.secret or ""} if len(text) >= MIN_SECRET}
