"""Tools that an agent, or an unusual home, offers: nothing shows that is no tool, and nothing waits for ever."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.stage import SECRET, SYSTEM_PATH, Place

pytestmark = pytest.mark.req("A3")


def test_a_fifo_in_place_of_pyvenv_cfg_does_not_hold_the_next_box_up(place: Place, ringfence_process: object) -> None:
    assert place.run("mkdir .venv && mkfifo .venv/pyvenv.cfg").exit_code == 0

    child: subprocess.Popen[str] = ringfence_process(  # type: ignore[operator]
        "import ringfence; print(ringfence.run('echo open').stdout)"
    )

    assert child.communicate(timeout=20)[0].strip() == "open"


def test_a_base_interpreter_in_the_workspace_stays_writable(place: Place) -> None:
    place.run(
        "mkdir -p .venv src/bin src/lib/python3.11; touch src/bin/python3 src/lib/python3.11/os.py; "
        "echo home = $PWD/src/bin > .venv/pyvenv.cfg"
    )

    assert place.run("touch src/new && echo writable").stdout == "writable\n"


def test_programs_of_a_home_behind_a_link_run_and_nothing_else_of_it_shows(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = place.home / ".local" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho works\n")
    tool.chmod(0o755)
    (place.home / ".local" / "lib").mkdir()
    keyring: Path = place.home / ".local" / "share" / "keyring"
    keyring.parent.mkdir()
    keyring.write_text(SECRET)
    link = place.top / "link"
    link.symlink_to(place.home)
    monkeypatch.setenv("HOME", str(link))
    monkeypatch.setenv("PATH", f"{link}/.local/bin:{place.home}/.local/bin:{SYSTEM_PATH}")

    done = place.run(f"tool; cat {keyring} {link}/.local/share/keyring")

    assert done.stdout == "works\n", done.stderr
