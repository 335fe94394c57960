"""The services that ask nobody, and what none of them may touch."""

import asyncio
import io
import re
from pathlib import Path

import pytest

import ringfence.approvals
from ringfence.approvals.automatic import AutoApproveConfirmationService, DevelopmentOnlyWarning
from ringfence.approvals.base import Choice
from ringfence.approvals.deny_all import DenyAllConfirmationService
from ringfence.approvals.terminal import TerminalConfirmationService
from tests.support.questions import a_question

pytestmark = pytest.mark.req("E6")


def test_the_automatic_service_warns_when_it_is_made_and_says_so_in_every_answer() -> None:
    with pytest.warns(DevelopmentOnlyWarning, match="for development only"):
        service = AutoApproveConfirmationService()

    for number in range(3):
        answer = asyncio.run(service.confirm(a_question(id=f"q{number}")))
        assert (answer.choice, answer.by) == (Choice.YES, "automatic (development)")


def test_where_nobody_can_be_asked_the_answer_is_no() -> None:
    assert asyncio.run(DenyAllConfirmationService().confirm(a_question())).choice is Choice.NO


def test_input_that_is_no_terminal_is_a_refusal_even_if_it_says_yes(tmp_path: Path) -> None:
    shown = io.StringIO()
    (tmp_path / "yes").write_text("yes\n" * 10)
    with (tmp_path / "yes").open() as stream:
        answer = asyncio.run(TerminalConfirmationService(stream, shown).confirm(a_question()))

    assert answer.choice is Choice.NO
    assert "not a terminal" in answer.how
    assert shown.getvalue() == ""


def test_a_closed_or_unreal_stream_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "yes").touch()
    closed = (tmp_path / "yes").open()
    closed.close()

    for stream in (closed, io.StringIO("yes\n")):
        answer = asyncio.run(TerminalConfirmationService(stream, io.StringIO()).confirm(a_question()))
        assert answer.choice is Choice.NO


def test_no_service_makes_a_file_or_a_socket_that_a_box_could_reach() -> None:
    (package,) = ringfence.approvals.__path__
    text = "\n".join(path.read_text(encoding="utf-8") for path in Path(package).glob("*.py"))

    assert (
        re.findall(r"\b(?:import (?:socket|tempfile|shutil|multiprocessing|subprocess)|open\(|mkfifo|mkdir)", text)
        == []
    )
