"""The OpenAPI document against the server: whatever it allows, the server answers with no 5xx and as it says.

`make server-fuzz` tries many more examples than this does.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from ringfence.server.openapi import document
from ringfence.server.table import TABLE
from tests.support.serving import running_server

EXAMPLES = int(os.environ.get("RINGFENCE_FUZZ_EXAMPLES", "1"))
# They wait for somebody else, or end what the others need.
LEFT_OUT = [
    "stream_events",
    "watch_files",
    "stream_execution",
    "wait_execution",
    "end_session",
    "extend_session",
    "run",
]
LONGEST = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)


@pytest.mark.timeout(60 + 60 * EXAMPLES)
def test_no_request_that_the_document_allows_is_a_fault_of_the_server(tmp_path: Path) -> None:
    schema = schemathesis.openapi.from_dict(json.loads(document(TABLE))).exclude(operation_id=LEFT_OUT)
    checks = (not_a_server_error, response_schema_conformance, content_type_conformance)
    tried = 0
    with running_server(tmp_path) as server, server.client() as client:
        client.post("/v1/sessions", json={"id": "fuzzed"}).raise_for_status()
        headers = {"Authorization": f"Bearer {server.token}", "Ringfence-Deadline": "20"}
        for operation in schema.get_all_operations():

            @LONGEST
            @given(case=operation.ok().as_strategy())
            def attempt(case: schemathesis.Case) -> None:
                nonlocal tried
                tried += 1
                if "session" in (case.path_parameters or {}):
                    case.path_parameters["session"] = "fuzzed"
                answer = case.call(base_url=server.url, headers=headers, timeout=60)
                case.validate_response(answer, checks=checks)

            attempt()
        assert client.get("/v1/sessions/fuzzed").status_code == 200

    assert tried >= len([row for row in TABLE if row.method != "WEBSOCKET"]) - len(LEFT_OUT)


def test_a_generator_of_clients_could_read_the_document() -> None:
    """Every reference leads somewhere, every operation has a name of its own, every path's parts are parameters."""
    told = json.loads(document(TABLE))
    text = json.dumps(told)
    names = [method["operationId"] for path in told["paths"].values() for method in path.values()]

    assert len(names) == len(set(names))
    for part in text.split('"$ref": "')[1:]:
        place: object = told
        for word in part.split('"')[0].removeprefix("#/").split("/"):
            assert isinstance(place, dict) and word in place, part[:80]
            place = place[word]
    for path, methods in told["paths"].items():
        for method in methods.values():
            inside = {each["name"] for each in method.get("parameters", ()) if each["in"] == "path"}
            assert inside == {part.split("}")[0] for part in path.split("{")[1:]}, path


def test_the_published_document_is_this_one() -> None:
    published = Path(__file__).parents[2] / "docs" / "openapi.json"

    assert published.read_bytes() == document(TABLE), "make server-docs writes it anew"
