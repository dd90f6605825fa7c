"""Secrets out, plain JSON in: what a config or an argument object may show in a record that people pass on.

A secret is known by its key (`hf_token`, `swanlab_api_key`, `webhook_url` ...), by its shape (`hf_...`, `sk-...`) or by
its place in a URL (`user:pass@`, `?token=`). Keys that only sound like one (`max_new_tokens`, `pad_token`) stay.
"""

import dataclasses
import enum
import itertools
import math
import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"
MAX_DEPTH = 12
MIN_SECRET = 6  # shorter texts are words that occur by chance

_ALWAYS = {"secret", "secrets", "password", "passwd", "passphrase", "credential", "credentials", "webhook", "apikey"}
_ALWAYS |= {"apikeys", "accesskey", "authorization", "bearer", "cookie", "cookies"}
_KEY_OWNERS = {"api", "access", "private", "auth", "signing", "encryption", "license", "wandb", "swanlab", "ssh"}
_KEY_OWNERS |= {"account", "service", "subscription", "openai", "hf", "master", "deploy"}
_TOKENS_OF_TEXT = {"pad", "eos", "bos", "unk", "sep", "cls", "mask", "image", "video", "audio", "special", "stop"}
_TOKENS_OF_TEXT |= {"additional", "start", "end", "begin", "prompt", "next", "new", "boi", "eoi", "eot", "eom", "fim"}
_TOKENS_OF_TEXT |= {"prefix", "suffix", "middle", "per", "decoder", "thought", "box", "first", "last"}
_TOKEN_OWNERS = {"api", "auth", "access", "bearer", "hub", "hf", "refresh", "session"}

_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-(?=[\w\-]*\d)[\w\-]{16,}|(?:ghp|gho|ghs|ghu)_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|glpat-[\w\-]{16,}|xox[abprs]-[\w\-]{10,}|AKIA[0-9A-Z]{16}|local-[0-9a-f]{40}|wandb_v1_\w{16,})"
    r"|(?<=Bearer )[\w\-.~+/]{8,}=*"
)
_DEFAULT = re.compile(r"(\$\{\w+:-)[^}]+\}")
_USER_IN_URL = re.compile(r"(?<=://)[^/\s@?#]+@")
_SECRET_IN_QUERY = re.compile(
    r"([?&;](?:[\w.\-]*(?:token|secret|password|passwd|signature|credential|api_?-?key|access_?-?key)|key|sig|sign|auth|pwd)=)[^&\s#;]+",
    re.I,
)
_WEBHOOKS = re.compile(
    r"(https?://(?:hooks\.slack\.com/|discord(?:app)?\.com/api/webhooks/|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/"
    r"|[\w.\-]+\.webhook\.office\.com/))[^\s\"']+"
)


def is_secret_key(key: object) -> bool:
    """Whether a key names a secret."""
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", str(key))
    words = [word for word in re.split(r"[^a-z0-9]+", text.lower()) if word]
    if not words:
        return False
    if words == ["key"] or _ALWAYS & set(words) or (words[-1] in ("auth", "pwd") and str(key) not in ("pwd", "PWD")):
        return True
    for before, word in itertools.pairwise(words):
        if word in ("key", "keys") and before in _KEY_OWNERS:
            return True
    if words[-1] == "token":
        return len(words) == 1 or words[-2] not in _TOKENS_OF_TEXT
    return words[-1] == "tokens" and len(words) > 1 and words[-2] in _TOKEN_OWNERS


def redact_text(text: str) -> str:
    """The text without secrets that are known by their shape or their place in a URL."""
    text = _DEFAULT.sub(rf"\g<1>{HIDDEN}}}", text)
    text = _USER_IN_URL.sub(f"{HIDDEN}@", text)
    text = _SECRET_IN_QUERY.sub(rf"\g<1>{HIDDEN}", text)
    text = _WEBHOOKS.sub(rf"\g<1>{HIDDEN}", text)
    return _SHAPES.sub(HIDDEN, text)


def secrets_in(value: object, key: str = "") -> set[str]:
    """The texts of a config that stand under a secret's key: what must not be said anywhere else either."""
    if isinstance(value, Mapping):
        return {secret for name, one in value.items() for secret in secrets_in(one, _key(name))}
    if isinstance(value, (list, tuple)):
        return {secret for one in value for secret in secrets_in(one, key)}
    return {value} if isinstance(value, str) and is_secret_key(key) and len(value) >= MIN_SECRET else set()


def hide(value: object, known: Iterable[str]) -> object:
    """`redact`, and every one of the `known` secrets replaced wherever it stands in a text."""
    value = redact(value)
    for secret in known:
        value = _replace(value, secret)
    return value


def _replace(value: object, secret: str) -> object:
    if isinstance(value, dict):
        return {name: _replace(one, secret) for name, one in value.items()}
    if isinstance(value, list):
        return [_replace(one, secret) for one in value]
    return value.replace(secret, HIDDEN) if isinstance(value, str) else value


def redact(value: object) -> object:
    """Plain JSON values without secrets, ready for a record.

    Mappings, dataclasses, lists and tuples are walked; sets become sorted lists, enums their value, and what JSON
    does not know becomes text (`torch.bfloat16`, paths, non-finite numbers). An unset secret (None, "", True, False)
    stays as it is: whether one was given is no secret.
    """
    return _walk(value, "", 0)


def _walk(value: object, key: str, depth: int) -> object:
    if key and is_secret_key(key):
        return value if value is None or isinstance(value, bool) or value == "" else HIDDEN
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return _walk(value.value, "", depth + 1)
    if isinstance(value, str):
        if re.fullmatch(r"[0-9a-f]{40}", value) and re.search(r"wandb|key|auth", key, re.I):
            return HIDDEN
        return redact_text(str(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth > MAX_DEPTH:
        return "<too deep>"
    if isinstance(value, Mapping):
        return {_key(name): _walk(one, _key(name), depth + 1) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walk(one, "", depth + 1) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_walk(one, "", depth + 1) for one in value), key=repr)
    if isinstance(value, (bytes, bytearray)):
        return f"<{len(value)} bytes>"
    return _other(value, depth)


def _key(name: object) -> str:
    return str(name.value if isinstance(name, enum.Enum) else name)


def _other(value: object, depth: int) -> object:
    """Dataclasses, configs with `to_dict`, numpy and torch scalars; anything else as text without an address."""
    try:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return _walk({name: getattr(value, name, None) for name in names}, "", depth)
        if callable(getattr(value, "to_dict", None)) and not isinstance(value, type):
            return _walk(value.to_dict(), "", depth + 1)
        if hasattr(value, "shape") and hasattr(value, "dtype"):  # a tensor is never read from its device
            numpy = type(value).__module__.startswith("numpy")
            if numpy and not value.shape:
                return _walk(value.item(), "", depth + 1)
            return f"<{type(value).__name__} {tuple(value.shape)} {value.dtype}>"
        text = str(value)
    except Exception:
        text = object.__repr__(value)
    if isinstance(value, type) or callable(value) or re.search(r" at 0x[0-9a-f]+", text):
        kind = value if hasattr(value, "__qualname__") else type(value)
        return f"<{getattr(kind, '__module__', '?')}.{kind.__qualname__}>"
    return redact_text(text)
