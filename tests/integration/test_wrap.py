"""`ringfence wrap`: a whole agent inside, with its key as a placeholder and a copy of its settings.

The agents here are scripts with the names of real ones; the real ones are in tests/agents (`make test-agents`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminals import Terminal

pytestmark = pytest.mark.req("X3")

RINGFENCE = (sys.executable, "-m", "ringfence.cli.app")
KEY = "sk-proj-" + "R7q2W9e4T1y6U3i8O5" * 2


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name in ("home/.codex", "home/.gemini", "project", "bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home/.codex/config.toml").write_text('model = "one"\n')
    (tmp_path / "home/.codex/auth.json").write_text('{"token": "of the account"}')
    return tmp_path


def program(top: Path, name: str, text: str) -> None:
    path = top / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def environment(top: Path, **more: str) -> dict[str, str]:
    path = f"{top / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    return {"HOME": str(top / "home"), "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def wrap(top: Path, *words: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    command = [*RINGFENCE, "wrap", *words]
    env = environment(top, **more)
    return subprocess.run(
        command, cwd=top / "project", env=env, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_key_inside_is_a_placeholder(top: Path) -> None:
    program(top, "codex", 'echo "key $OPENAI_API_KEY"; env | grep -c "$1" || true')

    done = wrap(top, "--", "codex", "unset", OPENAI_API_KEY=KEY)
    bare = subprocess.run(["codex"], env=environment(top, OPENAI_API_KEY=KEY), capture_output=True, text=True)

    assert done.returncode == 0 and KEY not in done.stdout + done.stderr, done.stderr
    shown = done.stdout.split()[1]
    assert shown.startswith("sk-") and len(shown) == len(KEY)
    assert KEY in bare.stdout


def test_its_own_sandbox_is_off_unless_somebody_says_otherwise(top: Path) -> None:
    program(top, "codex", 'echo "$@"')

    assert 'sandbox_mode="danger-full-access" exec it' in wrap(top, "--", "codex", "exec", "it").stdout
    assert wrap(top, "--", "codex", "--sandbox", "read-only", "x").stdout == "--sandbox read-only x\n"


def test_settings_are_a_copy_without_credentials(top: Path) -> None:
    program(top, "codex", f'ls "$CODEX_HOME"; cat "$CODEX_HOME/config.toml"; ls -a {top}/home/.codex 2>&1')

    done = wrap(top, "--", "codex")

    assert 'model = "one"' in done.stdout and "auth.json" not in done.stdout, done.stderr
    assert "No such file" in done.stdout, "the person's own directory is not there"


def test_what_an_agent_plants_in_its_copy_is_replaced_and_never_followed(top: Path) -> None:
    victim = top / "home" / "victim"
    victim.write_text("as it was")
    program(
        top,
        "codex",
        f'cd "$CODEX_HOME"; cat config.toml kept 2>/dev/null; rm config.toml; ln -s {victim} config.toml; echo x >kept',
    )

    first = wrap(top, "--", "codex")
    (top / "home/.codex/config.toml").write_text('model = "two"\n')
    second = wrap(top, "--", "codex")

    assert 'model = "one"' in first.stdout and "x" not in first.stdout.split(), first.stderr
    assert 'model = "two"' in second.stdout and "x" in second.stdout.split(), "its own state is kept"
    assert victim.read_text() == "as it was"
    assert (top / "home/.codex/config.toml").read_text() == 'model = "two"\n'


def test_other_projects_have_other_copies(top: Path) -> None:
    program(top, "codex", 'cat "$CODEX_HOME/planted" 2>&1; echo bad > "$CODEX_HOME/planted"')
    (top / "other").mkdir()

    assert "No such file" in wrap(top, "--", "codex").stdout
    assert "bad" in wrap(top, "--", "codex").stdout
    assert "No such file" in wrap(top, "-w", str(top / "other"), "--", "codex").stdout


def test_settings_lose_keys_helpers_and_our_own_hooks(top: Path) -> None:
    settings = {
        "env": {"GEMINI_API_KEY": "AIzaReal", "OTHER": "1"},
        "apiKeyHelper": "/bin/print-key",
        "hooks": {"BeforeTool": [{"command": "/usr/bin/ringfence hook gemini"}, {"command": "/usr/bin/mine"}]},
    }
    (top / "home/.gemini/settings.json").write_text(json.dumps(settings))
    (top / "home/.gemini/GEMINI.md").write_text(f"my key is {KEY}")
    program(
        top, "gemini", 'cd "$GEMINI_CLI_HOME/.gemini" && ls && cat settings.json && touch mine && touch ../not-mine'
    )

    done = wrap(top, "-v", "--", "gemini", GEMINI_API_KEY=KEY)

    names, _, text = done.stdout.partition("{")
    assert "GEMINI.md" not in names and "it holds a key" in done.stderr
    assert json.loads("{" + text) == {"env": {"OTHER": "1"}, "hooks": {"BeforeTool": [{"command": "/usr/bin/mine"}]}}
    assert list(top.rglob("mine")) and not list(top.rglob("not-mine")), "only its own directory is written outside"


def test_the_project_is_live_or_a_shadow_and_its_settings_are_protected(top: Path) -> None:
    program(top, "codex", "echo 1 > made; mkdir -p .codex && echo '[hooks]' > .codex/config.toml")

    on_shadow = wrap(top, "--shadow", "--", "codex")
    assert not (top / "project/made").exists() and "ringfence workspace commit" in on_shadow.stderr
    wrap(top, "--", "codex")
    assert (top / "project/made").exists() and not (top / "project/.codex/config.toml").exists()


def test_it_has_the_terminal_with_its_size(top: Path) -> None:
    program(top, "codex", 'stty size; read line; echo "got $line"; exit 7')

    words = [*RINGFENCE, "wrap", "--", "codex"]
    with Terminal(words, cwd=top / "project", env=environment(top), rows=33, columns=101) as terminal:
        terminal.wait_for("33 101")
        terminal.type("hello\r")
        terminal.wait_for("got hello")
        assert terminal.end() == 7


def test_in_a_script_input_and_output_pass_through(top: Path) -> None:
    program(top, "codex", "cat; echo err >&2; exit 3")

    done = wrap(top, "--", "codex", stdin="a line\n")

    assert (done.returncode, done.stdout) == (3, "a line\n") and "err" in done.stderr


def test_one_agent_works_on_a_project_at_a_time(top: Path) -> None:
    program(top, "codex", "echo started; cat")
    command = [*RINGFENCE, "wrap", "--", "codex"]
    first = subprocess.Popen(
        command, cwd=top / "project", env=environment(top), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None and first.stdout.readline() == "started\n"

    second = wrap(top, "--", "codex")
    first.communicate("")

    assert second.returncode == 125 and "runs on" in second.stderr and first.returncode == 0


def test_what_is_not_known_gets_nothing_and_is_told_so(top: Path) -> None:
    program(top, "some-agent", 'echo "${OPENAI_API_KEY:-none}"')

    done = wrap(top, "--", "some-agent", OPENAI_API_KEY=KEY)

    assert done.stdout == "none\n" and "no agent that is known" in done.stderr
    missing = wrap(top, "--", "no-such-agent")
    assert missing.returncode == 125 and "known agents are claude" in missing.stderr
