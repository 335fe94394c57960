"""The checklists on journals of real runs: figures that are right, and evidence that a person can read."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ringfence.cli.app import app
from ringfence.manager import checklist, image_claims
from ringfence.manager.claims import ClaimItem, ClaimState
from ringfence.manager.image import ListedImage
from ringfence.manager.records import recorded_at, records
from tests.integration.stage import Place

POLICY = "policies: {default: {denied_commands: [dig]}}\n"


def evidence(state: Path, item: str) -> str:
    return {"written": checklist._audit_written, "analysis": checklist._analysis}[item](state).evidence


@pytest.mark.req("B11")
def test_the_periodic_figures_count_the_runs_of_the_journal(place: Place) -> None:
    policy = place.top / "policy.yaml"
    policy.write_text(POLICY)
    place.run("true")
    place.run("exit 3")
    place.run("dig example.com", policy=policy)

    said = evidence(place.state, "analysis")

    assert said == "in 30 days: 3 runs, of them 1 refused and 0 without a result; 1 violations; a person has to look"


@pytest.mark.req("B11")
def test_runs_of_the_checklist_itself_are_told_apart(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checklist, "_dependencies", lambda: ClaimItem("x", ClaimState.UNKNOWN, "not asked"))
    place.run("true")
    checklist.check_all()

    said = evidence(place.state, "analysis")

    assert said.startswith("in 30 days: 1 runs, of them 0 refused and 0 without a result; 0 violations (")
    assert "runs of this checklist are not counted" in said


@pytest.mark.req("B11")
def test_records_older_than_the_period_are_not_counted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.run("true")
    real = time.time
    monkeypatch.setattr(checklist.time, "time", lambda: real() + 31 * 24 * 3600)

    assert evidence(place.state, "analysis").startswith("in 30 days: 0 runs")


@pytest.mark.req("B11")
def test_the_age_of_the_journal_is_that_of_its_last_record(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.time()
    place.run("true")
    (record,) = records(place.state)

    assert before - 1 < recorded_at(record) < time.time() + 1
    assert evidence(place.state, "written") == "last written just now; intact: 1 record in 1 file"
    real = time.time
    monkeypatch.setattr(checklist.time, "time", lambda: real() + 3 * 3600)
    assert evidence(place.state, "written") == "last written 3 hours ago; intact: 1 record in 1 file"


@pytest.mark.req("B11")
def test_a_journal_that_was_changed_fails_the_point_and_says_where(place: Place) -> None:
    place.run("true")
    place.run("echo two")
    (log,) = (file for file in place.state.iterdir() if file.suffix == ".jsonl")
    log.write_bytes(log.read_bytes().replace(b'"command":"true"', b'"command":"time"'))

    item = checklist._audit_written(place.state)

    assert item.found is ClaimState.NO
    assert "not whole: " in item.evidence and "Report(" not in item.evidence
    assert item.hint == "ringfence audit verify"


def test_an_empty_journal_fails_the_point(tmp_path: Path) -> None:
    assert checklist._audit_written(tmp_path).found is ClaimState.NO


@pytest.mark.req("B11")
def test_no_line_of_the_checklists_shows_a_value_of_python(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checklist, "_dependencies", lambda: ClaimItem("x", ClaimState.UNKNOWN, "not asked"))
    place.run("true")

    lines = [item for each in checklist.check_all() for item in each.items]

    for item in lines:
        assert not any(sign in item.evidence for sign in ("(fault=", "None", "<", "Path(", "{'", "['")), item


def test_stats_of_runs_without_an_agent_say_nothing_about_agents(place: Place) -> None:
    place.run("true")

    said = CliRunner().invoke(app, ["audit", "stats"]).output

    first, *rest = said.splitlines()
    assert first.startswith("1 execution, 20") and first.endswith(" UTC")
    assert not any(line.startswith("agent:") for line in rest)


# --- the image --------------------------------------------------------------------------------------------------------

DOCKER = {"RINGFENCE_TOOL_ENGINE": "docker", "RINGFENCE_DOCKER_IMAGE": "mine:1", "DOCKER_HOST": "unix:///nowhere.sock"}


def ask(monkeypatch: pytest.MonkeyPatch, *, created: float = 0.0, fit: bool = True) -> tuple[ClaimItem, ClaimItem]:
    async def checked(url: str | None, image: str) -> Any:
        class Fake:
            checks = ()

        Fake.fit = fit  # type: ignore[attr-defined]
        return Fake

    async def listed(url: str | None) -> tuple[ListedImage, ...]:
        return (ListedImage(("mine:1",), "sha256:0", created, 1, "sha256:1"),)

    monkeypatch.setattr(image_claims, "check_image", checked)
    monkeypatch.setattr(image_claims, "list_images", listed)
    return (
        asyncio.run(image_claims.image_is_built_and_scanned(DOCKER)),
        asyncio.run(image_claims.image_is_up_to_date(DOCKER)),
    )


@pytest.mark.req("B11")
def test_where_no_container_is_used_the_points_about_images_do_not_apply() -> None:
    for point in (image_claims.image_is_built_and_scanned, image_claims.image_is_up_to_date):
        assert asyncio.run(point({})).found is ClaimState.UNKNOWN


@pytest.mark.req("B11")
def test_an_image_that_is_not_there_fails_both_points() -> None:
    for point in (image_claims.image_is_built_and_scanned, image_claims.image_is_up_to_date):
        assert asyncio.run(point(DOCKER)).found is ClaimState.NO


@pytest.mark.parametrize(
    ("scanner", "printed", "found"),
    [
        ("trivy", {"Results": [{"Vulnerabilities": [{"VulnerabilityID": "CVE-1"}]}]}, ClaimState.NO),
        ("trivy", {"Results": [{"Target": "x"}]}, ClaimState.YES),
        ("grype", {"matches": [{"vulnerability": {"id": "CVE-2", "severity": "Critical"}}]}, ClaimState.NO),
        ("grype", {"matches": [{"vulnerability": {"id": "CVE-3", "severity": "Low"}}]}, ClaimState.YES),
        ("grype", {}, ClaimState.UNKNOWN),
        (None, None, ClaimState.UNKNOWN),
    ],
)
@pytest.mark.req("B11")
def test_an_image_counts_as_scanned_only_if_a_scanner_gave_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scanner: str | None, printed: object, found: ClaimState
) -> None:
    if scanner is not None:
        tool = tmp_path / scanner
        tool.write_text(f"#!/bin/sh\necho '{json.dumps(printed)}'\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    built, _ = ask(monkeypatch)

    assert built.found is found, built


@pytest.mark.req("B11")
def test_an_image_of_last_month_is_not_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(monkeypatch, created=time.time() - 86400)[1].found is ClaimState.YES
    assert ask(monkeypatch, created=time.time() - 31 * 86400)[1].found is ClaimState.NO


@pytest.mark.req("B11")
def test_an_image_that_boxes_cannot_be_made_of_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(monkeypatch, fit=False)[0].found is ClaimState.NO


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_a_table_of_records_shows_every_column_however_long_a_command_is(
    place: Place, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    place.run("true " + "x" * 300)

    head, row, *folded = CliRunner().invoke(app, ["audit", "tail"]).output.splitlines()

    assert head.split() == ["seq", "time", "tool", "result", "exit", "ms", "who", "command"]
    assert row.split()[0] == "1" and "shell_exec" in row and "success" in row and "true" in row
    assert max(map(len, (row, *folded))) <= columns
