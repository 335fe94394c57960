"""What is published about the keys of a policy: the JSON Schema for editors, and the table of docs/policy.md.

Both are made from the table of keys; tests hold docs/policy.schema.json and docs/policy.md to what is made here.
"""

import json
from collections.abc import Iterable
from typing import Any

from ringfence.policy.network_reading import BUDGET_KEYS
from ringfence.policy.schema import RULE_KEYS, SETTINGS, STRUCTURE, Key, Type
from ringfence.policy.secret_reading import SECRET_KEYS, SIGNERS
from ringfence.values.network import Asking, SecretPlace, SecretStyle


def json_schema() -> dict[str, Any]:
    """The schema for editors; it knows keys, types and choices, not the rules' own grammar."""
    block = _block("")
    role = {**block["properties"], **_role_keys()}
    policies = {
        "default": _said(block, "policies.default"),
        "tools": _said({"type": "object", "additionalProperties": block}, "policies.tools"),
        "agent_roles": _said(
            {"type": "object", "additionalProperties": {**block, "properties": role}}, "policies.agent_roles"
        ),
        "may_widen": _said({"type": "array", "items": {"enum": [key.name for key in SETTINGS]}}, "policies.may_widen"),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Ringfence policy",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "policies": _said({"type": "object", "additionalProperties": False, "properties": policies}, "policies"),
            "network": _said(block["properties"]["network"], "network"),
        },
    }


def schema_text() -> str:
    """What docs/policy.schema.json holds."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def key_table() -> str:
    """The table of settings in docs/policy.md."""
    rows = [
        f"| `{key.name}` | {key.type.value if not key.choices else _choices(key)} | `{key.example}` | {key.doc} "
        f"| {key.tighter.value} | {key.why} |"
        for key in SETTINGS
    ]
    head = "| key | holds | example | meaning | between layers | why it is there |\n|---|---|---|---|---|---|"
    return "\n".join((head, *rows))


def _choices(key: Key) -> str:
    words = ", ".join(f"`{choice}`" for choice in key.choices)
    return f"a list out of {words}" if key.type is Type.CHOICES else words


def _said(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return {**schema, "description": STRUCTURE[name]}


def _role_keys() -> dict[str, Any]:
    names = {"type": "array", "items": {"type": "string"}}
    return {
        "inherits": _said({"anyOf": [{"type": "string"}, names]}, "policies.agent_roles.*.inherits"),
        "tools": _said(names, "policies.agent_roles.*.tools"),
    }


def _block(prefix: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for key in SETTINGS:
        if not key.name.startswith(prefix):
            continue
        head, dot, _ = key.name[len(prefix) :].partition(".")
        if head not in properties:
            properties[head] = _block(f"{prefix}{head}.") if dot else {**_value(key), "description": key.doc}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _value(key: Key) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    match key.type:
        case Type.FLAG:
            return {"type": "boolean"}
        case Type.SIZE | Type.DURATION:
            return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, text]}
        case Type.CORES:
            return {"type": "number", "exclusiveMinimum": 0}
        case Type.COUNT:
            return {"type": "integer", "minimum": 1}
        case Type.CHOICE:
            return {"enum": list(key.choices)}
        case Type.CHOICES:
            return {"type": "array", "items": {"enum": list(key.choices)}}
        case Type.COMMANDS | Type.PATHS | Type.HOSTS:
            return {"type": "array", "items": {"anyOf": [text, _rule(RULE_KEYS[key.type])]}}
        case Type.PORTS:
            return {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}}
        case Type.DIRECTORIES | Type.TOOLS | Type.NETWORKS:
            return {"type": "array", "items": text}
        case Type.REACHABLE:
            return {"type": "array", "items": {"anyOf": [text, _allowing()]}}
        case Type.PUBLISHED:
            return {"type": "array", "items": {"anyOf": [{"type": "integer"}, text]}}
        case Type.SECRETS:
            return {"type": "object", "additionalProperties": _secret()}


def _texts(choices: Iterable[str] = ()) -> dict[str, Any]:
    text: dict[str, Any] = {"enum": list(choices)} if choices else {"type": "string"}
    return {"anyOf": [text, {"type": "array", "items": text}]}


def _allowing() -> dict[str, Any]:
    port = {"type": "integer", "minimum": 1, "maximum": 65535}
    own: dict[str, Any] = {
        "host": {"type": "string"},
        "ports": {"anyOf": [port, {"type": "array", "items": port}]},
        **{name: _texts() for name in ("methods", "paths", "private")},
        **{name: {"type": "boolean"} for name in ("raw", "inspect", "opaque")},
        "ssh": {"enum": ["read", "push"]},
        "user": {"type": "string"},
        "ask": {"anyOf": [{"type": "boolean"}, {"enum": list(Asking)}]},
        "budget": {"type": "object", "additionalProperties": False, "properties": {name: {} for name in BUDGET_KEYS}},
        "why": {"type": "string"},
    }
    return {"type": "object", "additionalProperties": False, "required": ["host"], "properties": own}


def _secret() -> dict[str, Any]:
    text = {"type": "string"}
    own = {**dict.fromkeys(SECRET_KEYS, text), "hosts": _texts(), "places": _texts(SecretPlace)}
    own |= {"style": {"enum": list(SecretStyle)}, "signer": {"enum": list(SIGNERS)}}
    return {"type": "object", "additionalProperties": False, "required": ["hosts"], "properties": own}


def _rule(name: str) -> dict[str, Any]:
    examples = {"type": "array", "items": {"type": "string"}}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name],
        "properties": {name: {"type": "string"}, "why": {"type": "string"}, "matches": examples, "spares": examples},
    }
