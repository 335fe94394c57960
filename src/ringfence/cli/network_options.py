"""The options of every command that opens a box about its network; what is made of them: `typed_network.py`."""

from typing import Annotated

import typer

from ringfence.cli.completing import complete_presets

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
