"""Refusals with their exact reason: path or address, and rule, from evidence that no command can write."""

from __future__ import annotations

import asyncio
import shutil
import sys

import pytest

from ringfence import BashTool, Result, Sandbox
from ringfence.values.grant import Trace
from tests.integration.stage import Place

pytestmark = pytest.mark.req("C7", "A8")

WRITE = "filesystem.whitelist"
BLACK = "filesystem.blacklist"
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable


def told(result: Result) -> str:
    return "\n".join(map(str, result.violations))


def rules(result: Result) -> list[str]:
    return [violation.rule for violation in result.violations]


@pytest.mark.parametrize(
    ("command", "target", "rule"),
    [
        ("echo x > /etc/made", "/etc/made", WRITE),
        ("echo x >> /etc/hosts", "/etc/hosts", WRITE),
        ("mkdir /opt/made", "/opt/made", WRITE),
        ("rm -f /usr/bin/env", "/usr/bin/env", WRITE),
        ("rmdir /usr/lib", "/usr/lib", WRITE),
        ("touch a; mv a /usr/made", "/usr/made", WRITE),
        ("mv /usr/bin/env env", "/usr/bin/env", WRITE),
        ("ln /usr/bin/env env", "/usr/bin/env", WRITE),
        ("ln -s x /usr/made", "/usr/made", WRITE),
        ("chmod 777 /usr/bin/env", "/usr/bin/env", WRITE),
        ("truncate -s 0 /etc/hosts", "/etc/hosts", WRITE),
        ("ln -s /etc/hosts link; echo x > link", "/etc/hosts", WRITE),
        ("cd /usr/lib && echo x > ../made", "/usr/made", WRITE),
        ("echo x > sub/.env", "/sub/.env", f"{BLACK} **/.env"),
        ("touch a; mv a sub/.env", "/sub/.env", f"{BLACK} **/.env"),
        ("touch .envrc.new; mkdir d; mv .envrc.new d/.envrc", "/d/.envrc", f"{BLACK} **/.envrc"),
        ("ln /etc/passwd here", "/etc/passwd", f"{BLACK} /etc/passwd"),
    ],
)
def test_a_change_that_is_refused_names_its_path_and_its_rule(
    place: Place, command: str, target: str, rule: str
) -> None:
    (place.workspace / "sub").mkdir()
    (place.workspace / "sub" / ".env").write_text("SECRET=1")

    result = place.run(command)

    assert not result.ok
    assert result.blocked
    assert target in told(result)
    assert rules(result) == [rule]
    assert result.blocked_reason is not None and target in result.blocked_reason


def test_a_protected_path_names_the_row_that_protects_it(repository: Place) -> None:
    result = repository.run("echo x > .git/hooks/pre-commit")

    assert not result.ok
    assert rules(result) == ["protected .git/hooks"]
    assert f"{repository.workspace}/.git/hooks/pre-commit" in told(result)


@pytest.mark.parametrize(
    ("call", "target"),
    [
        ("socket.create_connection(('10.1.2.3', 443), 1)", "10.1.2.3:443"),
        ("socket.socket(socket.AF_INET6).connect(('2001:db8::1', 80))", "[2001:db8:0:0:0:0:0:1]:80"),
        ("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('10.1.2.3', 53))", "10.1.2.3:53"),
        ("socket.socket().bind(('10.1.2.3', 80))", "10.1.2.3:80"),
    ],
)
def test_a_connection_that_is_refused_names_its_address(place: Place, call: str, target: str) -> None:
    result = place.run([PYTHON, "-c", f"import socket; {call}"])

    assert not result.ok
    assert target in told(result)
    assert rules(result) == ["network.allowNetwork false"]


def test_a_socket_of_the_host_is_named(place: Place) -> None:
    import socket

    path = place.home / "agent.sock"
    with socket.socket(socket.AF_UNIX) as host:
        host.bind(str(path))
        result = place.run([PYTHON, "-c", f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"])

    assert not result.ok
    assert str(path) in told(result)


@pytest.mark.parametrize("trace", ["off", "changes", "full"])
def test_the_answer_to_a_connection_says_nothing_about_what_the_host_has(place: Place, trace: str) -> None:
    import socket

    path = place.home / "agent.sock"
    tries = [path, path.with_name("other.sock"), place.home / "diary", place.home / "no" / "where"]
    code = (
        "import socket, sys\n"
        "for path in sys.argv[1:]:\n"
        "    for call in ('connect', 'sendto'):\n"
        "        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "        try: s.connect(path) if call == 'connect' else s.sendto(b'x', path)\n"
        "        except OSError as e: print(e.errno)\n"
    )
    with socket.socket(socket.AF_UNIX) as host:
        host.bind(str(path))
        (place.home / "diary").write_text("x")
        result = place.run([PYTHON, "-c", code, *map(str, tries)], trace=trace)

    errors = result.stdout.split()
    assert len(errors) == 2 * len(tries) and len(set(errors)) == 1


def test_a_socket_of_the_box_s_own_has_any_name(place: Place) -> None:
    """The host may have something of that name where the box has a directory of its own."""
    import tempfile

    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()"
    code += "; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix=".s.PGSQL.") as host:
        result = place.run([PYTHON, "-c", code, host.name])

    assert (result.ok, result.violations) == (True, ()), result.stderr


@pytest.mark.parametrize(
    "command", ["getent hosts example.com", f"{PYTHON} -c 'import socket; socket.getaddrinfo(\"example.com\", 80)'"]
)
def test_a_look_up_of_a_name_that_fails_leaves_a_word(place: Place, command: str) -> None:
    result = place.run(command)

    assert not result.ok
    assert "look-up of a host name" in told(result)
    assert rules(result) == ["network.allowNetwork false"]
    assert result.blocked and result.blocked_reason


def test_names_that_the_box_knows_leave_none(place: Place) -> None:
    result = place.run(f"{PYTHON} -c 'import socket; socket.getaddrinfo(\"localhost\", 80); socket.getfqdn()'")

    assert (result.ok, result.violations) == (True, ())


def test_loopback_inside_is_nobody_s_business(place: Place) -> None:
    code = "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); socket.create_connection(s.getsockname())"

    result = place.run([PYTHON, "-c", f"import socket; {code}"])

    assert (result.ok, result.violations) == (True, ())


@pytest.mark.parametrize("trace", ["changes", "reads", "full"])
@pytest.mark.parametrize("target", [".ssh/key", "diary", "project/.env"])
@pytest.mark.parametrize(
    "how", ["cat {}", "head -c 1 {}", "tail -n 1 {}", "source {}", "ln -s {} link; cat link", "sort < {}"]
)
def test_a_read_that_is_refused_is_explained(place: Place, target: str, how: str, trace: str) -> None:
    path = place.home / target
    (place.workspace / ".env").write_text("KEY=1")

    result = place.run(how.format(path), trace=trace)

    assert not result.ok
    assert str(path) in told(result)
    assert result.blocked and result.blocked_reason is not None and str(path) in result.blocked_reason


@pytest.mark.parametrize(
    "command", [f"{PYTHON} -c 'open(\".env\")'", "bash -c 'cat .env || true'", "cat < /proc/self/cwd/.env"]
)
def test_a_refused_read_has_its_reason_without_asking_for_it(place: Place, command: str) -> None:
    (place.workspace / ".env").write_text("KEY=1")

    result = place.run(command)
    tool = asyncio.run(BashTool().execute(command, place.workspace))

    assert rules(result) == [f"{BLACK} **/.env"]
    assert (tool.blocked, tool.blocked_reason) == (True, result.blocked_reason)


def test_reads_of_a_box_that_lives_are_explained_where_it_is_cheap(place: Place) -> None:
    (place.workspace / ".env").write_text("KEY=1")

    async def two(box: Sandbox) -> list[list[str]]:
        return [rules(await box.shell(command)) for command in ("cat .env", "cat < /dev/null", "cat .env")]

    assert place.in_box(two) == [[f"{BLACK} **/.env"], [], [f"{BLACK} **/.env"]]


def test_what_does_not_exist_is_no_violation(place: Place) -> None:
    result = place.run("cat /no/such/file; cat nothing; /no/such/program; exit 0", trace="full")

    assert result.violations == ()


def test_words_on_stderr_are_no_evidence(place: Place) -> None:
    result = place.run("echo 'Permission denied: /etc/passwd blocked by sandbox' >&2; exit 1")

    assert (result.blocked, result.violations) == (False, ())


@pytest.mark.parametrize("trace", ["off", "changes", "reads", "full"])
def test_ordinary_work_raises_no_violation(repository: Place, trace: str) -> None:
    work = (
        "mkdir -p a/b && echo x > a/b/c && mv a/b/c a/c && cp a/c a/d && rm a/d && ln -s c a/l && chmod +x a/c && "
        "git add -A && git commit -qm two && git status --short && ls -la && grep -r x . > /dev/null && "
        "python3 -c 'import json, tempfile, sqlite3; tempfile.TemporaryFile()' && echo $HOME > ~/x && cat ~/x > /tmp/y"
    )

    result = repository.run(work, trace=trace)

    assert result.ok, result.stderr
    assert result.violations == ()


def test_what_was_written_and_run_is_observed(place: Place) -> None:
    seen = place.run("echo x > made; mkdir sub; cat made").observed

    assert seen is not None
    assert {f"{place.workspace}/made", f"{place.workspace}/sub"} <= set(seen.written)
    assert any(program.endswith("/cat") for program in seen.executed)
    assert (seen.read, seen.is_complete) == (None, True)


def test_in_full_mode_reads_are_observed_too(place: Place) -> None:
    (place.workspace / "given").write_text("x")

    seen = place.run("cat given", trace="full").observed

    assert seen is not None and seen.read is not None
    assert f"{place.workspace}/given" in seen.read


def test_nobody_looks_when_it_is_off(place: Place) -> None:
    result = place.run("echo x > /etc/made", trace=Trace.OFF)

    assert (result.ok, result.observed, result.violations) == (False, None, ())


def test_each_command_has_its_own_violations(place: Place) -> None:
    async def three(box: Sandbox) -> list[int]:
        return [
            len((await box.shell(command)).violations) for command in ("echo x > /etc/a", "echo fine", "mkdir /opt/b")
        ]

    assert place.in_box(three) == [1, 0, 1]


def test_an_interpreter_s_refusals_are_explained_too(place: Place) -> None:
    async def two(box: Sandbox) -> tuple[Result, Result]:
        return await box.python("open('/etc/made', 'w')"), await box.python("1 + 1")

    refused, fine = place.in_box(two)

    assert refused.exception is not None and "/etc/made" in told(refused)
    assert fine.violations == ()


def test_a_flood_of_refusals_is_bounded_and_ends(place: Place) -> None:
    result = place.run("for i in $(seq 3000); do : > /etc/made$i; done 2>/dev/null", timeout=60)

    assert len(result.violations) <= 1000
    assert result.observed is not None and not result.observed.is_complete


def test_a_flood_of_refusals_does_not_hide_a_grave_one(place: Place) -> None:
    flood = """
for name in (*(f'/usr/made{number}' for number in range(1100)), '.bashrc'):
    try:
        open(name, 'w')
    except OSError:
        pass
"""
    result = place.run([PYTHON, "-c", flood])

    assert len(result.violations) == 1000
    assert rules(result)[-1] == "protected .bashrc"
    assert result.observed is not None and not result.observed.is_complete


def test_names_that_a_box_may_make_are_not_remembered_without_end(place: Place) -> None:
    """Who makes up names of files that are blacklisted and not there would fill the manager's memory with them."""
    tries = """
import collections, errno, os
pad = '/'.join(['x' * 250] * 15)
said = []
for number in range(400):
    try:
        os.open(f'{number}/{pad}/.env', os.O_CREAT | os.O_WRONLY)
    except OSError as fault:
        said.append(errno.errorcode[fault.errno])
print(*collections.Counter(said), said[0], said[-1])
"""
    assert place.run([PYTHON, "-c", tries]).stdout == "ENOENT EACCES ENOENT EACCES\n"


def test_a_name_with_control_characters_stays_one_violation(place: Place) -> None:
    result = place.run(r"mkdir $'/opt/a\nb\e[31m'")

    assert len(result.violations) == 1


def test_threads_that_change_the_name_meanwhile_fool_the_record_and_not_the_wall(place: Place) -> None:
    """A name is swapped between being looked at and being used: what is written is what the wall allows."""
    code = """
import ctypes, os, threading
libc = ctypes.CDLL(None)
good, bad = os.path.abspath('ok').encode(), b'/etc/made'.ljust(len(os.path.abspath('ok')), b'\\0')
buffer = ctypes.create_string_buffer(good + b'\\0' * 64)
def swap():
    for _ in range(20000):
        buffer.value = b'/etc/made'
        buffer.value = good
threading.Thread(target=swap, daemon=True).start()
for _ in range(3000):
    fd = libc.open(buffer, os.O_WRONLY | os.O_CREAT, 0o600)
    if fd >= 0:
        print(os.readlink(f'/proc/self/fd/{fd}'))
        libc.close(fd)
"""
    result = place.run([PYTHON, "-c", code], timeout=60)

    assert {line for line in result.stdout.splitlines() if not line.startswith(str(place.workspace))} == set()


def test_the_supervisor_s_answers_do_not_hold_up_a_busy_manager(place: Place) -> None:
    async def both() -> list[Result]:
        async with place.box() as box, place.box() as other:
            work = "for i in $(seq 200); do echo $i > f$i; done; echo x > /etc/a; exit 0"
            return await asyncio.gather(box.shell(work), other.shell(work))

    for result in asyncio.run(both()):
        assert result.ok
        assert rules(result) == [WRITE]


POLICY = """\
policies:
  default:
    filesystem:
      write: []
      deny:
        - "**/*.pem"
    network_access: false
    limits:
      output: 10KB
      memory: 200MB
"""


@pytest.mark.req("B4")
@pytest.mark.parametrize(
    ("command", "target", "rule", "line"),
    [
        ("cat key.pem", "project/key.pem", f"{BLACK} **/*.pem", 6),
        ("echo x > key.pem", "project/key.pem", f"{BLACK} **/*.pem", 6),
        ("echo x > /etc/made", "/etc/made", WRITE, 4),
        ("mkdir /opt/made", "/opt/made", WRITE, 4),
        ("rm -f /usr/bin/env", "/usr/bin/env", WRITE, 4),
        ("touch a; mv a /usr/made", "/usr/made", WRITE, 4),
        ("ln /usr/bin/env env", "/usr/bin/env", WRITE, 4),
        ("chmod 777 /usr/bin/env", "/usr/bin/env", WRITE, 4),
        ("chmod +x key.pem; ./key.pem", "project/key.pem", f"{BLACK} **/*.pem", 6),
        (f"{PYTHON} -c \"import socket; socket.socket().connect(('10.1.2.3', 80))\"", "10.1.2.3:80", None, 7),
        (f"{PYTHON} -c \"import socket; socket.socket().bind(('10.1.2.3', 80))\"", "10.1.2.3:80", None, 7),
        ("yes", "", "limits.output", 9),
        (f'{PYTHON} -c "x = bytearray(10**9); print(len(x))"', "", "limits.memory", 10),
    ],
)
def test_a_refusal_names_the_line_of_the_policy(
    place: Place, command: str, target: str, rule: str | None, line: int
) -> None:
    policy = place.home / "policy.yaml"
    policy.write_text(POLICY)
    (place.workspace / "key.pem").write_text("secret")
    (place.workspace / "script").write_text(command)  # so that only the wall can know

    result = place.run("bash script", policy=policy, trace="full")

    assert not result.ok
    (first, *_) = result.violations
    assert first.place == f"{policy}:{line}"
    assert target in first.target
    assert first.rule == (rule or "network.allowNetwork false")
    assert f"{policy}:{line}" in str(first)


@pytest.mark.req("A1")
def test_a_refusal_names_the_line_of_the_configuration(place: Place) -> None:
    config = place.home / "sandbox.json"
    config.write_text('{"filesystem": {\n "blacklist": [\n  "**/*.pem"]}}')
    for name in ("key.pem", ".env"):
        (place.workspace / name).write_text("secret")

    ours, built_in = (place.run(f"echo x > {name}", config=config) for name in ("key.pem", ".env"))

    assert [each.place for each in (*ours.violations, *built_in.violations)] == [f"{config}:3", "built-in"]
