"""Who may look: the name by which the board was called, and the token.

Without a token the board answers on the loopback address only, and only to the names that mean it. A page of another
site whose name was made to point here (DNS rebinding) carries its own name in the Host header and gets nothing.
With a token any name will do: such a page has no cookie of ours.
"""

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Literal

_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


@dataclass(frozen=True)
class Access:
    """The rule of one board.

    Attributes:
        token: what a visitor must know; None where only this machine can call.
    """

    token: str | None = field(default=None, repr=False)

    @classmethod
    def for_host(cls, host: str, token: str | None) -> "Access":
        """The rule for an address to listen on; off the loopback address a token is made where none is given."""
        return cls(token or (None if is_local(host) else secrets.token_urlsafe(24)))

    def cookie(self, port: int) -> tuple[str, str]:
        """Name and value of the cookie that stands for the token. Browsers share cookies between ports: one name each.

        The value is a hash, so a cookie that leaks does not tell the token.
        """
        word = hmac.new((self.token or "").encode(), b"llamafactory-obs board", hashlib.sha256).hexdigest()
        return f"llamafactory_obs_board_{port}", word

    def judge(
        self, headers: Mapping[str, str], given: str | None, port: int
    ) -> Literal["in", "welcome", "wrong name", "no token", "wrong token"]:
        """May this visitor come in?

        Args:
            headers: of the request; `get` ignores case.
            given: the token in the address, None where there is none.
            port: that the board listens on.

        Returns:
            "in"; "welcome": by the token in the address, a cookie shall be set; else why not.
        """
        if self.token is None:
            return "in" if _name(headers.get("Host", "")) in _LOCAL_NAMES else "wrong name"
        if given is not None:
            return "welcome" if _same(given, self.token) else "wrong token"
        name, value = self.cookie(port)
        try:
            held = SimpleCookie(headers.get("Cookie", "")).get(name)
        except CookieError:
            held = None
        if held is None:
            return "no token"
        return "in" if _same(held.value, value) else "wrong token"


def is_local(host: str) -> bool:
    """Is this an address that only this machine can reach?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _name(host: str) -> str:
    """The name in a Host header, without its port (a tunnel may have another one)."""
    match = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](:\d+)?|([^:\[\]]+)(:\d+)?", host.strip())
    if not match:
        return ""
    name = (match[1] or match[3]).lower().rstrip(".")
    return "127.0.0.1" if re.fullmatch(r"127(\.\d{1,3}){3}", name) else name


def _same(one: str, other: str) -> bool:
    """Compared in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())
