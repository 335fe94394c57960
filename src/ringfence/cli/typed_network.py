"""The `Network` that the options of the command line make."""

from collections.abc import Sequence

from ringfence.cli.say import print_line
from ringfence.errors import InvalidArgument
from ringfence.manager.network_options import Network


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
