"""The OpenAPI 3.1 document, made from the route table and the structs of the wire."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ringfence.server import wire
from ringfence.server.endpoint import BodyKind, Endpoint, Media
from ringfence.version import VERSION

_REF = "#/components/schemas/{name}"
_PART = re.compile(r"\{(\w+)(?::\w+)?\}")
_PARTS = {"session": "A session's id.", "execution": "An execution's id."}


def document(table: Sequence[Endpoint]) -> bytes:
    """As JSON."""
    rows = [row for row in table if row.method != "WEBSOCKET"]
    types: list[type] = [wire.Problem]
    for row in rows:
        types += [kind for kind in (row.body, row.answer, row.query) if kind is not None]
    schemas, components = msgspec.json.schema_components(dict.fromkeys(types), ref_template=_REF)
    by_type = dict(zip(dict.fromkeys(types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(_PART.sub(r"{\1}", row.path), {})[row.method.lower()] = _operation(row, by_type, components)
    told = msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Ringfence",
                "version": VERSION,
                "description": "Runs what agents write inside walls, by a policy, with a record (docs/server.md).",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "security": [{"token": []}],
            "tags": [{"name": tag} for tag in dict.fromkeys(row.tag for row in rows)],
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
                "responses": {
                    "Problem": {"description": "An error", "content": _content(by_type[wire.Problem], PROBLEM)}
                },
            },
        }
    )
    return msgspec.json.format(told, indent=2) + b"\n"


PROBLEM = "application/problem+json"


def _operation(row: Endpoint, by_type: dict[type, Any], components: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PARTS.get(name, name),
            "schema": {"type": "string"},
        }
        for name in _PART.findall(row.path)
    ]
    if row.query is not None:
        parameters += _query(components[row.query.__name__])
    if row.starts:
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "The same key with the same request does it once.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
            }
        )
    told: dict[str, Any] = {
        "operationId": row.name,
        "summary": row.does,
        "tags": [row.tag],
        "responses": {
            str(row.status): _success(row, by_type),
            **({"202": _success(row, by_type)} if row.name in ("run", "run_in_session") else {}),
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }
    if parameters:
        told["parameters"] = parameters
    if row.scope is None:
        told["security"] = []
    else:
        told["description"] = f"Needs the scope `{row.scope}`."
    if row.kind is BodyKind.JSON and row.body is not None:
        told["requestBody"] = {"required": not row.optional_body, "content": _content(by_type[row.body])}
    elif row.kind is BodyKind.STREAM:
        told["requestBody"] = {
            "required": False,
            "content": {Media.BYTES.value: {"schema": {"type": "string", "format": "binary"}}},
        }
    return told


def _success(row: Endpoint, by_type: dict[type, Any]) -> dict[str, Any]:
    if row.status == 204:
        return {"description": "Done."}
    content: dict[str, Any] = {}
    for media in row.media:
        is_json = media is Media.JSON and row.answer is not None
        schema = by_type[row.answer] if is_json and row.answer is not None else {}
        content[media.value] = {"schema": schema if media is Media.JSON else {"type": "string"}}
    return {"description": row.does, "content": content}


def _content(schema: Any, media: str = Media.JSON.value) -> dict[str, Any]:
    return {media: {"schema": schema}}


def _query(schema: dict[str, Any]) -> list[dict[str, Any]]:
    needed = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": _without_null(part)}
        for name, part in schema["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter of a query that is not given is not null."""
    if "anyOf" not in schema:
        return schema
    kinds = [kind for kind in schema["anyOf"] if kind.get("type") != "null"]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**kinds[0], **rest} if len(kinds) == 1 else {"anyOf": kinds, **rest}


if __name__ == "__main__":
    import sys

    from ringfence.server.table import TABLE

    sys.stdout.buffer.write(document(TABLE))
