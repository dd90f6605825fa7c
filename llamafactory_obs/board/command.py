"""`llamafactory-obs board DIR [DIR ...]`: what the verb does with its words."""

import os
import re
import signal
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ConfigError
from ..output import print_json
from ..texts import text

#: where the token may stand instead of on the command line, which other users of a machine can read
TOKEN_VARIABLE = "LLAMAFACTORY_OBS_BOARD_TOKEN"
_SHORTEST_TOKEN = 12


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        folders: output folders, or folders that hold several of them.
        host: address to listen on.
        port: 0 lets the system choose; None takes the first free one from `address.FIRST_PORT` on.
        token: asked of every visitor; None: none is asked for on the loopback address, elsewhere one is made.
        price: of the machine in an hour; None: what each run's config says.
        as_json: one object on stdout.
    """

    folders: tuple[Path, ...]
    host: str = "127.0.0.1"
    port: int | None = None
    token: str | None = field(default=None, repr=False)
    price: float | None = None
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("dirs", nargs="+", metavar="DIR", help=text("help.board.dirs"))
    add("--port", type=int, metavar="N", help=text("help.board.port"))
    add("--host", default="127.0.0.1", metavar="H", help=text("help.board.host"))
    add("--token", metavar="T", help=text("help.board.token", variable=TOKEN_VARIABLE))
    add("--price", type=float, metavar="P", help=text("help.common.price"))
    add("--json", action="store_true", help=text("help.board.json"))
    parser.epilog = text("help.board.epilog")


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a word that makes no sense.
    """
    folders = []
    for word in args.dirs:
        if not word.strip():  # an unset variable of the shell; it would mean the current folder
            raise ConfigError("DIR is empty; give a run's output_dir, or a folder that holds several")
        folder = Path(word).expanduser()
        if not folder.is_dir():
            raise ConfigError(f"{'not a folder' if folder.exists() else 'no such folder'}: {folder}")
        folders.append(folder)
    if args.port is not None and not 0 <= args.port <= 65535:
        raise ConfigError(f"--port must be a number from 0 to 65535, got {args.port}")
    if args.price is not None and not 0 <= args.price < 1e9:
        raise ConfigError(f"--price must be a price per hour, 0 or more, got {args.price}")
    if not args.host.strip():
        raise ConfigError("--host is empty; leave it out for this machine only, or give an address such as 0.0.0.0")
    token = args.token if args.token is not None else os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and not re.fullmatch(rf"[A-Za-z0-9._~-]{{{_SHORTEST_TOKEN},200}}", token):
        raise ConfigError(
            f"the token must have {_SHORTEST_TOKEN} to 200 letters, digits or the signs . _ ~ - (it stands in a URL)"
        )
    host = args.host.strip().removeprefix("[").removesuffix("]")  # an IPv6 address as it stands in a URL
    return Request(tuple(folders), host, args.port, token, args.price, args.json)


def run(request: Request) -> int:
    """Serve until Ctrl-C, SIGTERM or SIGHUP (the terminal is closed), and return 0.

    Raises:
        ConfigError: the port is taken, or the address is not one of this machine.
    """
    from .access import Access
    from .address import lines, listen
    from .feed import Feed
    from .server import Visits

    access = Access.for_host(request.host, request.token)
    feed = Feed(request.folders, price=request.price)
    server = listen(request.host, request.port, Visits(feed, access))
    before = _on_signals(server)
    try:
        runs = feed.look_for_runs()
        if request.as_json:
            print_json(server.facts() | {"runs": runs}, sys.stdout)
        else:
            print("\n".join(lines(server, request.port, runs)))
        sys.stdout.flush()
        server.serve_forever(poll_interval=0.25)
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        server.server_close()
        feed.close()
    return 0


def _on_signals(server) -> dict:
    """SIGTERM and SIGHUP end the board like Ctrl-C, but one that is ignored (nohup); returns what was there before."""

    def end(*_) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()  # it waits for the loop that this interrupts

    heeded = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    return {number: signal.signal(number, end) for number in heeded}
