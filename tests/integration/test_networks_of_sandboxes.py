"""Every face that opens a box gives it the network that was granted, and never more: real boxes, the real proxy.

What a box reaches here are servers on this machine's loopback, by `reach`; where a public host is needed, by a world of
the test's own behind the proxy (`tests.support.outside_world`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import ringfence
from ringfence import (
    BashTool,
    ExecutionRequest,
    Network,
    PoolConfig,
    Result,
    Sandbox,
    SandboxBuilder,
    SandboxExecutor,
    SandboxManager,
    SandboxPool,
    sync,
)
from ringfence.approvals.base import Answer, Choice, Question
from ringfence.approvals.queue import QueueConfirmationService
from ringfence.manager.workspaces import Workspaces
from ringfence.values.remedy import Door
from ringfence.values.violation import ViolationType
from tests.integration.stage import Place, descriptors, eventually, processes_with
from tests.support.outside_world import replace_outside

pytestmark = pytest.mark.req("B5", "X4")
HELLO = "hello from outside"


class Handler(BaseHTTPRequestHandler):
    """Says hello; `/slow` when somebody lets it."""

    release = threading.Event()
    waiting = threading.Semaphore(0)

    def do_GET(self) -> None:
        if self.path == "/slow":
            self.waiting.release()
            self.release.wait(20)
        body = f"{HELLO}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    """A web server on the host's loopback."""
    Handler.release.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server.server_port
        Handler.release.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def world(port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> int:
    """The server is port 80 of every public host."""
    replace_outside(monkeypatch, tmp_path, {80: port})
    return port


def get(url: str | int, path: str = "/") -> str:
    address = f"127.0.0.1:{url}" if isinstance(url, int) else url
    return f"curl -sS --max-time 20 http://{address}{path}"


def get_in_python(port: int) -> str:
    return (
        f"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:{port}/', timeout=20).read().decode())"
    )


def children(pid: int) -> set[int]:
    """The processes that a process started and that are there."""
    found: set[int] = set()
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found |= set(map(int, (task / "children").read_text().split()))
    return found


def descendants(pid: int) -> set[int]:
    """All processes below one, as far as they have not left it."""
    found: set[int] = set()
    waiting = {pid}
    while waiting:
        below = children(waiting.pop()) - found
        found |= below
        waiting |= below
    return found


def proxies(parent: int | None = None) -> list[int]:
    """The proxy processes that a process started, this one if none is named."""
    found = []
    for pid in children(parent or os.getpid()):
        with contextlib.suppress(OSError):
            if b"ringfence.egress.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended; that nobody has waited for it yet is no matter."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def kinds(result: Result) -> set[ViolationType]:
    return {each.kind for each in result.violations}


# --- every face -------------------------------------------------------------------------------------------------------


def test_run_has_the_network_that_it_is_given_and_none_without(place: Place, port: int) -> None:
    given = place.run(get(port), network=Network(reach=[port]))
    without = place.run(get(port))

    assert (given.stdout.strip(), without.stdout) == (HELLO, "")
    assert not without.ok
    assert proxies() == []


def test_one_box_has_it_in_every_kind_of_call(place: Place, port: int) -> None:
    async def main() -> list[str]:
        async with Sandbox(place.workspace, network=Network(reach=[port])) as box:
            by_shell = await box.shell(get(port))
            by_program = await box.exec(get(port).split())
            kept = await box.shell(get(port), context="kept")
            again = await box.shell(get(port), context="kept")
            code = await box.python(get_in_python(port))
            later = await box.python(get_in_python(port))
            started = await box.start(get(port))
            await started.wait(30)
            behind = await box.shell(f"({get(port)} > late) & ", keep_background=True)
            assert behind.ok
            while HELLO not in (await box.shell("cat late 2>/dev/null; true")).stdout:
                await asyncio.sleep(0.05)
            said = [each.stdout for each in (by_shell, by_program, kept, again, code, later)]
            assert len(proxies()) == 1
            return [*said, started.read()[0].decode()]

    assert {each.strip() for each in asyncio.run(main())} == {HELLO}
    assert proxies() == []


def test_a_shadow_has_it(place: Place, port: int) -> None:
    with Workspaces() as workspaces:
        shadow = workspaces.new(place.workspace)
        done = place.run(f"{get(port)} > page; cat page", shadow=shadow, network=Network(reach=[port]))
        without = place.run(get(port), shadow=shadow)

    assert done.stdout.strip() == HELLO
    assert not without.ok
    assert not (place.workspace / "page").exists()


def test_the_blocking_face_has_it(place: Place, port: int) -> None:
    with sync.Sandbox(place.workspace, network=Network(reach=[port], publish=[8000])) as box:
        assert box.shell(get(port)).stdout.strip() == HELLO
        assert box.published[8000].startswith("http://127.0.0.1:")
    assert proxies() == []


def test_a_builder_opens_the_hosts_that_it_names(place: Place, world: int) -> None:
    built = SandboxBuilder().working_dir(place.workspace).allow_domain("api.example.com")

    async def main() -> tuple[Result, Result]:
        async with built.build() as box:
            return await box.shell(get("api.example.com")), await box.shell(get("other.example.com"))

    given, other = asyncio.run(main())
    assert given.stdout.strip() == HELLO
    assert HELLO not in other.stdout
    assert kinds(other) == {ViolationType.NETWORK_VIOLATION}


def test_a_pool_and_its_sessions_have_the_network_of_the_pool(place: Place, port: int) -> None:
    async def main() -> list[Result]:
        size = PoolConfig(min_instances=1, max_instances=4)
        async with SandboxPool(size=size, network=Network(reach=[port])) as pool:
            taken = await pool.take("shell_exec")
            session = await pool.acquire("s1")
            results = [
                await taken.shell(get(port)),
                await session.python(get_in_python(port)),
                await (await pool.acquire("s1", "shell_exec")).shell(get(port)),
            ]
            pool.discard(taken)
            return results

    assert {each.stdout.strip() for each in asyncio.run(main())} == {HELLO}
    assert proxies() == []


def test_a_manager_gives_each_call_and_session_what_was_granted_and_no_more(place: Place, port: int) -> None:
    async def main() -> list[Result]:
        async with SandboxManager(pool_size=1, network=Network(reach=[port])) as manager:
            given = [
                await manager.execute_shell(get(port)),
                await manager.execute_code("python", get_in_python(port)),
                await manager.execute(ExecutionRequest(command=get(port), session_id="s1")),
                await manager.execute(ExecutionRequest(code=get_in_python(port), session_id="s1")),
            ]
            # A request has no network of its own to ask for, so that nobody can ask for more than the manager's.
            with pytest.raises(ringfence.InvalidArgument):
                SandboxManager(pool=manager.pool, network=Network(reach=[port, 1]))
            return given

    assert [each.stdout.strip() for each in asyncio.run(main())] == [HELLO] * 4


POLICY = """\
network:
  allow: [code.example.com, shell.example.com]
policies:
  tools:
    code_run: {network_access: true, allowed_domains: [code.example.com]}
    shell_exec: {network_access: true, allowed_domains: [shell.example.com]}
"""


def test_code_and_commands_of_one_session_have_each_its_own_network(place: Place, world: int) -> None:
    policy = place.top / "policy.yaml"
    policy.write_text(POLICY)
    code = "import subprocess; print(subprocess.run({!r}, shell=True, capture_output=True, text=True).stdout)"

    async def main() -> list[Result]:
        async with SandboxManager("s1", pool_size=1, policy_file=policy) as manager:
            return [
                await manager.execute_shell(get("shell.example.com")),
                await manager.execute_shell(get("code.example.com")),
                await manager.execute_code("python", code.format(get("code.example.com"))),
                await manager.execute_code("python", code.format(get("shell.example.com"))),
            ]

    done = asyncio.run(main())
    assert [HELLO in each.stdout for each in done] == [True, False, True, False]
    assert [bool(kinds(each)) for each in done] == [False, True, False, True]


def test_two_sandboxes_side_by_side_share_nothing(place: Place, port: int, world: int) -> None:
    other = place.top / "other"
    other.mkdir()

    async def main() -> list[Result]:
        async with (
            Sandbox(place.workspace, network=["one.example.com"]) as one,
            Sandbox(other, network=["two.example.com"]) as two,
        ):
            calls = [box.shell(get(host)) for box in (one, two) for host in ("one.example.com", "two.example.com")]
            serve = await one.start("python3 -m http.server --bind 127.0.0.1 8000")
            found = list(await asyncio.gather(*calls))
            own = await one.shell("for i in $(seq 100); do curl -s 127.0.0.1:8000 && break; sleep 0.1; done")
            cross = await two.shell("curl -sS --noproxy '*' 127.0.0.1:8000")
            serve.kill()
            return [*found, own, cross]

    *calls, own, cross = asyncio.run(main())
    assert [HELLO in each.stdout for each in calls] == [True, False, False, True]
    # Of two calls side by side in one box it is not known whose a refusal is; of two boxes it is.
    refused = [" ".join(each.target for call in pair for each in call.violations) for pair in (calls[:2], calls[2:])]
    assert ["one." in each for each in refused] == [False, True]
    assert ["two." in each for each in refused] == [True, False]
    assert own.ok and not cross.ok


# --- how it ends ------------------------------------------------------------------------------------------------------


def test_a_box_that_is_closed_while_requests_run_leaves_nothing(place: Place, port: int) -> None:
    before = descriptors()

    async def main() -> None:
        async with Sandbox(place.workspace, network=Network(reach=[port])) as box:
            for _ in range(3):
                await box.start(get(port, "/slow"))
            running = await box.start(get(port, "/slow"))
            for _ in range(4):
                await asyncio.to_thread(Handler.waiting.acquire, timeout=20)
            assert running.alive and len(proxies()) == 1

    asyncio.run(main())
    assert proxies() == []
    assert eventually(lambda: descriptors() <= before + 4)  # the server's own, until it notices


def test_a_box_whose_proxy_was_killed_is_refused_at_once_and_a_new_one_works(place: Place, port: int) -> None:
    async def main() -> tuple[Result, Result, Result]:
        async with Sandbox(place.workspace, network=Network(reach=[port])) as box:
            first = await box.shell(get(port))
            (proxy,) = proxies()
            os.kill(proxy, 9)
            while proxies():
                await asyncio.sleep(0.02)
            second = await box.shell(f"{get(port)}; {get(port)} --noproxy '*'")
        async with Sandbox(place.workspace, network=Network(reach=[port])) as box:
            return first, second, await box.shell(get(port))

    first, second, third = asyncio.run(main())
    assert (first.stdout.strip(), third.stdout.strip()) == (HELLO, HELLO)
    assert second.stdout == "" and second.stderr.count("Failed to connect") + second.stderr.count("refused") >= 2
    assert second.usage.wall_seconds < 15, "nobody waits for an answer: the clients themselves would for 20 s each"
    assert proxies() == []


MANAGER = """
import asyncio, sys
from ringfence import Network, Sandbox
async def main():
    async with Sandbox(sys.argv[1], network=Network(reach=[int(sys.argv[2])], publish=[8000])) as box:
        print((await box.shell("curl -sS http://127.0.0.1:" + sys.argv[2])).stdout, flush=True)
        started = await box.start("sleep 600 # " + sys.argv[3])
        print("up", flush=True)
        await started.wait()
asyncio.run(main())
"""


def test_a_manager_that_is_killed_leaves_no_process(place: Place, port: int) -> None:
    mark = f"mark-{os.urandom(6).hex()}"
    process = subprocess.Popen(
        [sys.executable, "-c", MANAGER, str(place.workspace), str(port), mark], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        lines = [process.stdout.readline() for _ in range(3)]
        assert lines[0].strip() == HELLO and lines[2] == "up\n", lines
        (proxy,) = proxies(process.pid)
        family = descendants(process.pid)
        process.kill()
        process.wait()
    assert proxy in family and len(family) >= 3  # the launcher, the socket maker of the network, what runs inside
    assert eventually(lambda: all(map(is_gone, family)))
    assert processes_with(mark) == []


# --- asking -----------------------------------------------------------------------------------------------------------


class Answers:
    """A person who gives these answers, one after the other, and the last one for ever."""

    def __init__(self, *choices: Choice) -> None:
        self.choices = list(choices)
        self.asked: list[Question] = []

    async def confirm(self, question: Question) -> Answer:
        self.asked.append(question)
        choice = self.choices.pop(0) if len(self.choices) > 1 else self.choices[0]
        return Answer(choice=choice, by="ann", how="in a test", request_hash=question.request_hash)


def ask_about(place: Place, who: object, *commands: str, **network: object) -> list[Result]:
    async def main() -> list[Result]:
        granted = Network(**({"allow": [], "ask": True} | network))  # type: ignore[arg-type]
        async with Sandbox(place.workspace, network=granted, confirmation=who) as box:  # type: ignore[arg-type]
            return [await box.shell(command) for command in commands]

    return asyncio.run(main())


NEW = "new.example.com"


def test_yes_once_is_for_one_request(place: Place, world: int) -> None:
    who = Answers(Choice.YES, Choice.NO)

    first, second = ask_about(place, who, get(NEW), get(NEW))

    assert (HELLO in first.stdout, HELLO in second.stdout) == (True, False)
    assert len(who.asked) == 2
    assert not first.violations and "ann" in second.violations[0].what


def test_yes_for_the_session_is_not_asked_again(place: Place, world: int) -> None:
    who = Answers(Choice.YES_FOR_SESSION, Choice.NO)

    done = ask_about(place, who, get(NEW), get(NEW), get(NEW, "/other"), get("another.example.com"))

    assert [HELLO in each.stdout for each in done] == [True, True, True, False]
    assert len(who.asked) == 2


def test_no_is_a_refusal_with_what_would_allow_it(place: Place, world: int) -> None:
    (done,) = ask_about(place, Answers(Choice.NO), get(NEW) + " -D-")

    assert "403 Ringfence: no rule names new.example.com; refused (ann, in a test)" in done.stdout
    assert done.violations[0].allow_by == f"--allow {NEW}:80"


def test_without_anybody_to_ask_it_is_refused_at_once(place: Place, world: int) -> None:
    (done,) = ask_about(place, None, get(NEW) + " -D-")

    assert "nobody can be asked" in done.stdout
    assert done.usage.wall_seconds < 8, "nothing is held"


def test_the_question_shows_what_is_sent_and_the_journal_who_said_yes(place: Place, world: int) -> None:
    who = Answers(Choice.YES)

    (done,) = ask_about(place, who, f"curl -sS -X POST -d x 'http://{NEW}/up?token=abc'")

    assert HELLO in done.stdout
    assert who.asked[0].command == f"POST {NEW}:80/up?token=abc"
    log = "".join(path.read_text() for path in place.state.rglob("*.jsonl"))
    records = [json.loads(line) for line in log.splitlines() if NEW in line]
    assert any("ann" in json.dumps(record) for record in records), records
    assert "token=abc" not in log.replace(f"'http://{NEW}/up?token=abc'", "")


def test_a_yes_to_one_path_is_none_to_another_where_a_rule_says_to_ask(place: Place, world: int) -> None:
    who = Answers(Choice.YES_FOR_SESSION, Choice.NO)
    rule = {"host": NEW, "ask": True}

    done = ask_about(place, who, get(NEW, "/a"), get(NEW, "/a"), get(NEW, "/b"), allow=[rule], ask=False)

    assert [HELLO in each.stdout for each in done] == [True, True, False]
    assert [each.command for each in who.asked] == [f"GET {NEW}:80/a", f"GET {NEW}:80/b"]


def test_only_changes_are_asked_about_where_the_rule_says_so(place: Place, world: int) -> None:
    who = Answers(Choice.NO)
    rule = {"host": NEW, "ask": "changes"}

    reading, changing = ask_about(place, who, get(NEW), f"{get(NEW)} -d x", allow=[rule], ask=False)

    assert (HELLO in reading.stdout, HELLO in changing.stdout) == (True, False)
    assert [each.command for each in who.asked] == [f"POST {NEW}:80/"]


@pytest.mark.parametrize("host", ["denied.example.com", "10.0.0.1", "169.254.169.254", "127.0.0.1", "localhost"])
def test_nobody_is_asked_about_what_is_denied_private_or_metadata(place: Place, world: int, host: str) -> None:
    who = Answers(Choice.YES)

    (done,) = ask_about(place, who, f"curl -sS --noproxy '' --max-time 20 http://{host}/", deny=["denied.example.com"])

    assert HELLO not in done.stdout
    assert who.asked == []
    assert done.violations


def test_a_late_yes_lets_the_next_try_pass(place: Place, world: int) -> None:
    queue = QueueConfirmationService()

    async def main() -> tuple[Result, Result]:
        granted = Network(allow=[], ask=True)
        async with Sandbox(place.workspace, network=granted, confirmation=queue) as box:
            first = await box.shell(get(NEW) + " -D-")
            (question,) = queue.pending()
            queue.answer(question.id, Choice.YES, "ann")
            return first, await box.shell(get(NEW))

    first, second = asyncio.run(main())
    assert "403 Ringfence: no rule names new.example.com; a person is being asked (question 1)" in first.stdout
    assert HELLO in second.stdout


def test_a_manager_s_own_service_is_asked(place: Place, world: int) -> None:
    who = Answers(Choice.YES)

    async def main() -> Result:
        granted = Network(allow=[], ask=True)
        async with SandboxManager(pool_size=1, network=granted, confirmation_service=who) as manager:
            return await manager.execute_shell(get(NEW))

    assert HELLO in asyncio.run(main()).stdout
    assert len(who.asked) == 1


def test_in_a_pool_each_session_has_its_own_person_to_ask(place: Place, world: int) -> None:
    yes, no = Answers(Choice.YES), Answers(Choice.NO)

    async def main() -> list[Result]:
        async with SandboxPool(network=Network(allow=[], ask=True), size=PoolConfig(min_instances=1)) as pool:
            with_yes = await pool.acquire("yes", "shell_exec", confirmation=yes)
            with_no = await pool.acquire("no", "shell_exec", confirmation=no)
            with_nobody = await pool.acquire("nobody", "shell_exec")
            assert len(proxies()) == 1
            return [await box.shell(get(NEW)) for box in (with_yes, with_no, with_nobody)]

    done = asyncio.run(main())
    assert [HELLO in each.stdout for each in done] == [True, False, False]
    assert (len(yes.asked), len(no.asked)) == (1, 1)
    records = [json.loads(line) for path in place.state.rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert {"yes", "no", "nobody"} <= {each.get("session_id") for each in records if NEW in json.dumps(each)}


# --- ports ------------------------------------------------------------------------------------------------------------

WALLS = ("bwrap", "unshare")
SERVE = "python3 -m http.server --bind 127.0.0.1 8000"


def fetched(url: str) -> str:
    """What a server says, once it is up."""
    found: list[str] = []

    def is_up() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found.append(answer.read().decode())
        except OSError:
            return False
        return True

    assert eventually(is_up, 20)
    return found[0]


@pytest.mark.parametrize("wall", WALLS)
def test_the_host_reaches_a_published_port_and_the_box_one_of_the_host(
    place: Place, port: int, wall: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", wall)
    (place.workspace / "index.html").write_text("from inside")
    with socket.create_server(("127.0.0.1", 0)) as free:
        chosen = free.getsockname()[1]

    async def main() -> tuple[str, str, Result, str]:
        granted = Network(publish=[8000, f"8001:{chosen}"], reach=[port])
        async with Sandbox(place.workspace, network=granted) as box:
            assert box.published == {}
            await box.open()
            urls = box.published
            assert urls[8001] == f"http://127.0.0.1:{chosen}"
            await box.start(SERVE)
            await box.start(SERVE.replace("8000", "8001"))
            said = [await asyncio.to_thread(fetched, urls[inside]) for inside in (8000, 8001)]
            done = await box.shell(get(port))
            assert box.wall is not None
            return said[0], said[1], done, box.wall.name

    first, second, done, name = asyncio.run(main())
    assert (first, second, done.stdout.strip()) == ("from inside", "from inside", HELLO)
    assert wall in name


def test_a_port_that_is_taken_cannot_be_published(place: Place, port: int) -> None:
    with pytest.raises(ringfence.InitializationFailed, match=f"port {port} of 127.0.0.1 cannot be published"):
        place.run("true", network=Network(publish=[f"8000:{port}"]))
    assert proxies() == []


def ringfence_run(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ringfence.cli.app", "run", *words],
        cwd=place.workspace,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env=dict(os.environ),
        check=False,
    )


def test_run_publish_says_where_before_the_command_starts(place: Place) -> None:
    done = ringfence_run(place, "--publish", "8000", "echo started >&2")

    first, second = done.stderr.splitlines()[:2]
    assert re.fullmatch(r"ringfence: port 8000 of the box is at http://127\.0\.0\.1:\d+", first)
    assert second == "started"


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_refusal_is_a_violation_with_what_would_allow_it(place: Place, world: int) -> None:
    done = place.run(get("other.example.com") + " -D-", network=["api.example.com"])

    assert "HTTP/1.1 403 Ringfence: no rule allows other.example.com:80" in done.stdout
    (violation,) = done.violations
    assert (violation.kind, violation.target) == (ViolationType.NETWORK_VIOLATION, "other.example.com:80")
    assert violation.remedy(Door.LIBRARY) == "network=['other.example.com:80']"
    assert violation.remedy(Door.COMMAND_LINE) == "--allow other.example.com:80"
    assert violation.remedy(Door.POLICY) == "add other.example.com:80 to network.allow of the policy"
    allowed = place.run(get("other.example.com"), network=["other.example.com:80"])
    assert HELLO in allowed.stdout


def test_a_failed_look_up_is_a_violation(place: Place, world: int) -> None:
    look = "getent ahostsv4 other.example.com; getent ahostsv4 api.example.com"

    done = place.run(look, network=["api.example.com"])

    assert done.stdout.startswith("198.1")
    assert [each.target for each in done.violations] == ["other.example.com"]


def test_the_terminal_has_one_line_for_it_and_the_policy_s_door_its_own_words(place: Place) -> None:
    by_option = ringfence_run(place, "--allow", "api.example.com", "curl -s http://other.example.com/")
    policy = place.top / "policy.yaml"
    policy.write_text("network:\n  allow: [api.example.com]\n")
    (place.workspace / "fetch.py").write_text("import urllib.request as u; u.urlopen('http://other.example.com/')")
    by_policy = ringfence_run(place, "--policy", str(policy), "python3 fetch.py")

    (line,) = by_option.stderr.splitlines()
    assert "no rule allows other.example.com:80" in line and line.endswith("--allow other.example.com:80")
    assert "add other.example.com:80 to network.allow of the policy" in by_policy.stderr


def test_an_agent_reads_at_the_end_of_stderr_whom_to_ask_for_what(place: Place) -> None:
    tool = BashTool(SandboxExecutor(annotate=True, workspace=place.workspace, network=["api.example.com"]))

    done = asyncio.run(tool.execute("curl -s http://other.example.com/"))

    assert "no rule allows other.example.com:80" in done.stderr
    assert "ask the operator to allow other.example.com:80" in done.stderr


def test_a_wall_without_a_network_of_its_own_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", "landlock")
    if os.geteuid() == 0:
        pytest.skip("the landlock wall is for ordinary users")

    assert place.run("true", requires=frozenset()).ok
    with pytest.raises(ringfence.InitializationFailed, match="has no network of its own"):
        place.run("true", requires=frozenset(), network=["api.example.com"])
