"""The options of every command that opens a box about its network, and the `Network` that they make."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ringfence.cli.completing import complete_presets
from ringfence.cli.say import print_line
from ringfence.errors import InvalidArgument
from ringfence.manager.network_options import Network

AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="HOST|PRESET",
        help="A host that it may reach, host:port, or a preset such as pip; see `ringfence net presets`.",
        autocompletion=complete_presets,
    ),
]
SecretOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="NAME=SOURCE@HOST",
        help="A secret for its requests to the host, which never comes inside: KEY=env:KEY@api.example.com.",
    ),
]
PublishOption = Annotated[
    list[str] | None,
    typer.Option(
        "--publish", metavar="PORT[:PORT]", help="Reach a server in the box at 127.0.0.1, at the second port or any."
    ),
]
ReachOption = Annotated[
    list[int] | None,
    typer.Option("--reach", metavar="PORT", help="A port of this machine's loopback that it reaches at 127.0.0.1."),
]
AskNetworkOption = Annotated[
    bool, typer.Option("--ask-network", help="Ask at this terminal about a host that nothing allows.")
]


def typed_network(
    *,
    allow: Sequence[str] | None = None,
    secret: Sequence[str] | None = None,
    publish: Sequence[str] | None = None,
    reach: Sequence[int] | None = None,
    ask: bool = False,
    learn: bool = False,
) -> Network | None:
    """What was typed about the network; None if nothing was.

    Raises:
        InvalidArgument: something of it makes no sense.
    """
    if not (allow or secret or publish or reach or ask or learn):
        return None
    return Network(
        allow=_words(allow),
        secrets=tuple(secret or ()),
        publish=tuple(publish or ()),
        reach=tuple(reach or ()),
        ask=ask,
        learn=learn,
        written="--allow",
    )


def say_published(urls: dict[int, str]) -> None:
    """Where servers inside are reached: also where nobody wants notes, since a chosen port is told nowhere else."""
    for inside, url in urls.items():
        print_line(f"port {inside} of the box is at {url}")


def _words(allow: Sequence[str] | None) -> tuple[str, ...] | None:
    if not allow:
        return None
    for text in allow:
        if not text.strip() or text.strip() == "*":
            raise InvalidArgument(
                f"--allow {text!r} names no host", hint="name the hosts; `ringfence net learn -- COMMAND` finds them"
            )
    return tuple(allow)
