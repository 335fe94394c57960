"""What RINGFENCE_URL means for each command: done by the server that it names, of this machine anyway, or refused.

Refused is what would do here, or show of here, what somebody who has named a server means to be done there.
"""

from ringfence.errors import InvalidArgument

TYPE_CHECKING = False  # without `typing`, as in `app.py`
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

URL_VARIABLE = "RINGFENCE_URL"

BY_SERVER = frozenset({"run", "check", "shell"})
"""These speak to it."""
OF_THIS_MACHINE = frozenset({"init", "policy", "config", "keeper", "image", "doctor", "serve", "token"})
"""Files of this machine, and what it can do: a server changes nothing about them."""
REFUSED = {
    "mcp": "its tools would work on this machine",
    "wrap": "the agent would run on this machine",
    "hook": "its commands would run on this machine",
    "bundle": "bundles of this machine",
    "browser": "a browser of this machine",
    "workspace": "shadows of this machine",
    "fetch": "it would fetch from this machine",
    "http": "it would send from this machine",
    "net": "what boxes of this machine reached",
    "pool": "pools of this machine",
    "violations": "what was refused on this machine",
    "audit": "the record of this machine",
}
"""And why."""


def is_on_server(environ: "Mapping[str, str]") -> bool:
    """Whether a server is named, which commands speak to."""
    return bool(environ.get(URL_VARIABLE, "").strip())


def refuse_of_this_machine(words: "Sequence[str]", environ: "Mapping[str, str]") -> None:
    """
    Raises:
        InvalidArgument: the command is not done by the server that is named.
    """
    if not is_on_server(environ) or words[0] not in REFUSED or "--help" in words or "-h" in words:
        return
    raise InvalidArgument(
        f"{URL_VARIABLE} names a server, and `ringfence {words[0]}` does not speak to one: {REFUSED[words[0]]}",
        hint=f"unset {URL_VARIABLE} for this machine; a server has it in its console and its API (docs/server.md)",
    )
