"""`ringfence token`: who may use the server."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.commands.serve import server_state
from ringfence.cli.exits import Finished
from ringfence.cli.group import make_group
from ringfence.cli.output import make_table, show_table
from ringfence.cli.say import print_note
from ringfence.errors import InvalidArgument, NotInstalled
from ringfence.values.sizes import parse_duration

token = make_group("Tokens of the server: make one, list them, revoke one.")

State = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The server's state directory; default: server, in ours.")
]


def _open(state: Path | None) -> tuple[Any, Any]:
    try:
        from ringfence.server.store import Store
        from ringfence.server.tokens import Tokens
    except ImportError as fault:
        raise NotInstalled("tokens need packages", hint="pip install 'ringfence[server]'") from fault
    store = Store(server_state(state))
    return store, Tokens(store)


@token.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is: `ci`, `anna's phone`.")],
    tenant: Annotated[str, typer.Option(metavar="NAME", help="The tenant that it belongs to.")] = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help="view, run, approve, audit, tokens, operate; default: view and run."),
    ] = None,
    expires: Annotated[str, typer.Option(metavar="TIME", help="How long it is good: 12h, 720h, or `never`.")] = "720h",
    state: State = None,
) -> None:
    """Make a token and print it: this once, since only its hash is kept. A server that runs takes it at once.

    Example:

        ringfence token create ci --tenant research --scope run --scope view --expires 24h
    """
    from ringfence.server.tenants import Scope

    try:
        scopes = [Scope(word) for word in scope or ("view", "run")]
    except ValueError:
        raise InvalidArgument("a scope that is none", argument="--scope", hint=", ".join(Scope)) from None
    lives = None if expires == "never" else parse_duration(expires)
    store, tokens = _open(state)
    try:
        text, made = tokens.create(tenant=tenant, name=name, scopes=scopes, lives_seconds=lives)
    finally:
        store.close()
    print_note(f"token {made.id} of tenant {tenant}: {', '.join(sorted(made.scopes))}; it is shown this once")
    print(text)


@token.command("list")
def list_tokens(
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Of this tenant only.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list instead of a table.")] = False,
    state: State = None,
) -> None:
    """List the tokens, without their text."""
    store, tokens = _open(state)
    try:
        found = tokens.list(tenant)
    finally:
        store.close()
    rows = [
        {
            "id": each.id,
            "tenant": each.tenant,
            "name": each.name,
            "scopes": sorted(each.scopes),
            "created_at": each.created_at,
            "expires_at": each.expires_at,
            "revoked_at": each.revoked_at,
            "used_at": each.used_at,
            "is_good": each.is_good(time.time()),
        }
        for each in found
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = make_table("id", "tenant", "name", "scopes", "state", "expires", "last used", whole=("id",))
    for row in rows:
        state_word = "good" if row["is_good"] else "revoked" if row["revoked_at"] else "expired"
        table.add_row(
            row["id"],
            row["tenant"],
            row["name"],
            " ".join(row["scopes"]),
            state_word,
            _when(row["expires_at"], "never"),
            _when(row["used_at"], "never"),
        )
    show_table(table)


@token.command()
def revoke(
    ident: Annotated[str, typer.Argument(metavar="ID", help="As `ringfence token list` shows it.")],
    state: State = None,
) -> None:
    """Revoke a token: from now on it opens nothing."""
    store, tokens = _open(state)
    try:
        found = tokens.revoke(ident)
    finally:
        store.close()
    print_note(f"token {found.id} ({found.name}) is revoked")
    raise Finished(0)


def _when(at: float | None, otherwise: str) -> str:
    return otherwise if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
