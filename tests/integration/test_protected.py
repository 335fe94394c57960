"""What a program of the host would later run or trust stays as it was, whatever the agent tries in its workspace."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ringfence import Sandbox
from ringfence.errors import PermissionDenied
from tests.integration.stage import SECRET, Place

pytestmark = pytest.mark.req("A3", "B6")


def snapshot(root: Path) -> dict[str, bytes | None]:
    """Names and contents of everything below a directory; links by where they lead."""
    found: dict[str, bytes | None] = {}
    for at, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(at, name)
            key = os.path.relpath(path, root)
            if os.path.islink(path):
                found[key] = os.fsencode(os.readlink(path))
            elif stat.S_ISREG(os.lstat(path).st_mode):
                found[key] = Path(path).read_bytes()
            else:
                found[key] = None
    return found


def trusted(root: Path) -> dict[str, bytes | None]:
    """What git would run or follow."""
    kept = ("hooks", "config", "config.worktree", "commondir", "modules")
    return {name: data for name, data in snapshot(root / ".git").items() if name.split("/")[0] in kept}


HOOK = "printf '#!/bin/sh\\ntouch /tmp/pwned\\n'"

GIT_ATTACKS = {
    "write a hook": f"{HOOK} > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "change a sample hook": (
        f"{HOOK} > .git/hooks/pre-commit.sample; mv .git/hooks/pre-commit.sample .git/hooks/pre-commit"
    ),
    "replace the hooks directory": f"mv .git/hooks .git/h; mkdir .git/hooks; {HOOK} > .git/hooks/pre-commit",
    "replace it by a link": "rm -rf .git/hooks; mkdir evil; ln -s ../evil .git/hooks",
    "rename .git": f"mv .git .g; mkdir -p .git/hooks; cp -r .g/. .git/; {HOOK} > .git/hooks/pre-commit",
    "remove .git": "rm -rf .git; git init -q .; " + f"{HOOK} > .git/hooks/pre-commit",
    "exchange .git by renameat2": (
        'mkdir evil; python3 -c "import ctypes; print(ctypes.CDLL(None).syscall(316, -100, '
        "b'.git', -100, b'evil', 2))\""
    ),
    "write the config": (
        "printf '[core]\\n\\tfsmonitor = touch /tmp/pwned\\n' >> .git/config; git config core.hooksPath evil"
    ),
    "replace the config": "cp .git/config c; echo '[alias] st = !x' >> c; mv -f c .git/config; cp c .git/config",
    "truncate the config": ": > .git/config; truncate -s0 .git/config; rm -f .git/config",
    "the config through a hard link": "ln .git/config c && echo evil >> c; ln .git/config .git/c && echo x >> .git/c",
    "the config through its lock file": "echo evil > .git/config.lock && mv .git/config.lock .git/config",
    "the config through /proc/self/root": (
        "echo x >> /proc/self/root$PWD/.git/config; echo x >> /proc/self/cwd/.git/config"
    ),
    "the config through /workspace": "echo evil >> /workspace/.git/config",
    "a config of the work tree": "printf '[core]\\n\\thooksPath = evil\\n' > .git/config.worktree",
    "redirect by commondir": "mkdir -p evil/hooks; echo ../evil > .git/commondir",
    "a submodule's directory": f"mkdir -p .git/modules/x/hooks; {HOOK} > .git/modules/x/hooks/post-checkout",
    "a link in the way": "mkdir evil; mv .git/hooks .git/x; ln -s $PWD/evil .git/hooks; ln -sf /etc/passwd .git/config",
    "chmod the config": "chmod 777 .git/config .git/hooks; touch -d @0 .git/config",
}


@pytest.mark.parametrize("attack", GIT_ATTACKS.values(), ids=GIT_ATTACKS.keys())
def test_what_git_trusts_is_as_before_and_git_still_works(repository: Place, attack: str) -> None:
    before = trusted(repository.workspace)
    mode = (repository.workspace / ".git/config").stat().st_mode

    repository.run(f"({attack}) ; git status >/dev/null")

    assert trusted(repository.workspace) == before
    assert (repository.workspace / ".git/config").stat().st_mode == mode
    if "rm -rf .git;" not in attack:  # what it could remove was its own to lose
        assert repository.run("git commit -q --allow-empty -m after && git log --format=%s").stdout == "after\none\n"
    assert not os.path.exists("/tmp/pwned")


@pytest.mark.parametrize(
    "name",
    ["write a hook", "rename .git", "write the config", "the config through a hard link", "redirect by commondir"],
)
def test_without_the_wall_the_same_attack_changes_what_git_trusts(repository: Place, name: str) -> None:
    before = trusted(repository.workspace)

    repository.host(GIT_ATTACKS[name])  # writes files of this repository only; nothing in it is run

    assert trusted(repository.workspace) != before


def test_the_agent_can_still_change_the_rest_of_git(repository: Place) -> None:
    line = (
        "echo x > .git/info/exclude; git update-ref refs/heads/other HEAD; git tag t; git notes "
        "add -m n; echo y > .git/description; cat .git/config | head -1"
    )

    done = repository.run(line)

    assert done.stdout == "[core]\n", done.stderr
    assert repository.host("git tag; git branch").stdout.split() == ["t", "*", "main", "other"]


# --- other repositories of the workspace ------------------------------------------------------------------------------


@pytest.fixture
def nested(repository: Place) -> Place:
    line = (
        "mkdir -p deep/er && cd deep/er && git init -q -b main . && git -c user.name=A -c "
        "user.email=a@b.c commit -q --allow-empty -m n"
    )
    assert repository.host(line).returncode == 0
    return repository


@pytest.mark.parametrize(
    "name", ["write a hook", "replace the hooks directory", "rename .git", "write the config", "redirect by commondir"]
)
def test_a_nested_repository_is_guarded_like_the_outer_one(nested: Place, name: str) -> None:
    before = trusted(nested.workspace / "deep/er")

    nested.run(f"cd deep/er; {GIT_ATTACKS[name]}; cd ../..; git status")

    assert trusted(nested.workspace / "deep/er") == before
    assert nested.run("cd deep/er && git log --format=%s").stdout == "n\n"


@pytest.mark.parametrize("parent", ["deep", "deep/er"])
def test_a_nested_repository_cannot_be_replaced_by_moving_its_parent(nested: Place, parent: str) -> None:
    before = trusted(nested.workspace / "deep/er")

    nested.run(
        f"mv {parent} gone; mkdir -p deep/er/.git/hooks; cp -r gone/. {parent}/; {HOOK} > "
        "deep/er/.git/hooks/pre-commit; true"
    )

    assert trusted(nested.workspace / "deep/er") == before


def test_a_git_file_that_points_elsewhere_cannot_be_replaced(repository: Place) -> None:
    assert repository.host("git worktree add -q ../tree").returncode == 0
    tree = repository.home / "tree"
    pointer = (tree / ".git").read_text()

    done = repository.run(
        "echo 'gitdir: evil' > .git; rm -f .git; mv .git x; mkdir y; mv -T y .git; ln -sf evil .git; cat .git",
        workspace=tree,
    )

    assert done.stdout == pointer
    assert (tree / ".git").read_text() == pointer


def test_work_trees_that_lie_elsewhere_cannot_be_redirected(repository: Place) -> None:
    assert repository.host("git worktree add -q ../tree && git config extensions.worktreeConfig true").returncode == 0
    before = snapshot(repository.workspace / ".git/worktrees")

    repository.run(
        "mkdir -p evil/hooks; cd .git/worktrees/tree; echo /workspace/evil > commondir; echo "
        "'[core] hooksPath=/x' > config.worktree;"
        " cd ../../..; mv .git/worktrees .git/w; mkdir -p .git/worktrees/tree; echo $PWD/evil > "
        ".git/worktrees/tree/commondir"
    )

    after = snapshot(repository.workspace / ".git/worktrees")
    assert {name: after.get(name) for name in ("tree/commondir", "tree/gitdir")} == {
        name: before[name] for name in ("tree/commondir", "tree/gitdir")
    }
    assert "tree/config.worktree" not in after


@pytest.mark.parametrize(
    "attack",
    [
        "{hook} > .git/hooks/pre-commit",
        "rm .git; mkdir -p .git/hooks; {hook} > .git/hooks/pre-commit",
        "{hook} > store/hooks/pre-commit",
        "echo evil >> store/config",
    ],
)
def test_a_git_directory_behind_a_link_is_guarded_too(repository: Place, attack: str) -> None:
    assert repository.host("mv .git store && ln -s store .git").returncode == 0

    repository.run(attack.format(hook=HOOK))

    assert not (repository.workspace / ".git/hooks/pre-commit").exists()
    assert "evil" not in (repository.workspace / ".git/config").read_text()


# --- settings of editors, agents and shells ---------------------------------------------------------------------------

NAMES = (
    ".vscode",
    ".idea",
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".mcp.json",
    ".bashrc",
    ".profile",
    ".zshrc",
    ".husky",
    ".gitmodules",
    ".devcontainer",
)


def test_names_that_are_not_there_can_be_made_in_no_way_and_are_gone_afterwards(place: Place) -> None:
    attempt = "; ".join(
        (
            f"mkdir -p {n}; echo evil > {n}; echo evil > x; mv -f x {n}; ln -sf x {n}; ln -f x {n}; rm "
            f"-rf {n}; mkdir -p y; mv -T y {n}; cp -r y {n}"
        )
        for n in NAMES
    )

    place.run(attempt + "; rm -rf x y")

    assert place.names() == set()

    place.host(attempt)
    assert set(NAMES) <= place.names()


def test_a_placeholder_can_be_neither_read_nor_written_nor_marked(place: Place) -> None:
    done = place.run(
        f"for n in {' '.join(NAMES)}; do cat $n; echo x > $n; touch -d @99 $n; chmod 777 $n; done; echo end"
    )

    assert done.stdout == "end\n"
    assert place.names() == set()


@pytest.mark.parametrize(("trace", "during"), [("off", {".vscode", ".claude"}), ("changes", set())])
def test_the_host_has_placeholders_only_where_nobody_looks_at_calls_and_never_afterwards(
    place: Place, trace: str, during: set[str]
) -> None:
    async def work(box: Sandbox) -> set[str]:
        await box.shell("true")
        return place.names()

    found = place.in_box(work, trace=trace)

    assert found & {".vscode", ".claude"} == during
    assert place.names() == set()


def test_settings_that_are_there_stay_readable_and_cannot_be_changed(place: Place) -> None:
    (place.workspace / ".vscode").mkdir()
    (place.workspace / ".vscode/settings.json").write_text("{}\n")
    (place.workspace / ".mcp.json").write_text("[]\n")
    (place.workspace / ".bashrc").write_text("")
    before = snapshot(place.workspace)
    attempt = (
        "echo x > .vscode/settings.json; echo x > .vscode/tasks.json; rm -rf .vscode .mcp.json "
        ".bashrc; mv .vscode v; mv .mcp.json m;"
        " ln .mcp.json hard; ln .vscode/settings.json hard2; echo x > .bashrc; mkdir .vscode/new; "
        "chmod 0 .vscode; touch m && mv -f m .mcp.json; rm -f m"
    )

    done = place.run("cat .vscode/settings.json .mcp.json; " + attempt)

    assert done.stdout == "{}\n[]\n"
    assert snapshot(place.workspace) == before

    place.host(attempt)
    assert snapshot(place.workspace) != before


def test_an_empty_file_of_a_protected_name_is_the_hosts_and_stays(place: Place) -> None:
    """It looks much like a placeholder."""
    for name in (".bashrc", ".mcp.json"):
        (place.workspace / name).touch()

    place.run("rm -f .bashrc .mcp.json; true")

    assert place.names() == {".bashrc", ".mcp.json"}


def test_a_link_of_a_protected_name_cannot_be_used_to_write_what_it_leads_to(place: Place) -> None:
    (place.workspace / "real").mkdir()
    (place.workspace / "real/settings.json").write_text("{}")
    (place.workspace / ".vscode").symlink_to("real")
    (place.workspace / ".claude").symlink_to(place.home / "elsewhere")

    place.run("echo evil > real/settings.json; echo evil > .vscode/settings.json; echo evil > .claude/x")

    assert (place.workspace / "real/settings.json").read_text() == "{}"
    assert not (place.home / "elsewhere").exists()


def test_protected_names_hold_in_every_writable_directory(place: Place) -> None:
    other = place.top / "other"
    other.mkdir()

    place.run(f"echo evil > {other}/.vscode; echo evil > {other}/.bashrc; echo fine > {other}/fine", write=[other])

    assert os.listdir(other) == ["fine"]


# --- the blacklist inside the workspace -------------------------------------------------------------------------------

READS = {
    "plainly": "cat .env",
    "by absolute path": "cat $PWD/.env",
    "through /workspace": "cat /workspace/.env",
    "through /proc/self/root": "cat /proc/self/root$PWD/.env",
    "through /proc/self/cwd": "cat /proc/self/cwd/.env",
    "through a link": "ln -s .env l; cat l",
    "through a hard link": "ln .env h; cat h",
    "after a rename": "mv .env r; cat r",
    "after a rename of its directory": "mv sub other; cat other/.env",
    "by copying": "cp .env c; cat c; cp -r . /tmp/all; cat /tmp/all/.env",
    "by archive": "tar cf - . | strings | grep hunter2; grep -r hunter2 .",
    "by git": "git init -q . && git add -fA; git show :.env",
    "by python": "python3 -c \"print(open('.env').read())\"",
    "by mmap": "python3 -c \"import mmap, os; f = os.open('.env', os.O_RDONLY); print(mmap.mmap(f, 0, prot=1)[:])\"",
    "by a bind": "unshare -rm sh -c 'umount .env; cat .env'; umount .env; cat .env",
    "by its directory's descriptor": (
        "python3 -c \"import os; d = os.open('.', os.O_PATH); print(os.read(os.open('.env', 0, dir_fd=d), 99))\""
    ),
    "in another case": "cat .ENV .Env",
}


@pytest.mark.parametrize("attempt", READS.values(), ids=READS.keys())
def test_a_blacklisted_file_cannot_be_read(place: Place, attempt: str) -> None:
    (place.workspace / "sub").mkdir()
    for name in (".env", "sub/.env"):
        (place.workspace / name).write_text(SECRET)

    done = place.run(attempt)

    assert SECRET not in done.stdout + done.stderr
    assert (place.workspace / ".env").read_text() == SECRET


@pytest.mark.parametrize(
    "name", ["plainly", "through a link", "through a hard link", "after a rename", "by copying", "by archive", "by git"]
)
def test_without_the_wall_it_is_read(place: Place, name: str) -> None:
    (place.workspace / ".env").write_text(SECRET)

    assert SECRET in place.host(READS[name].replace("/tmp/all", str(place.top / "all"))).stdout


def test_a_blacklisted_directory_in_the_workspace_is_empty_and_shut(place: Place) -> None:
    (place.workspace / "private").mkdir()
    (place.workspace / "private/key.pem").write_text(SECRET)
    (place.workspace / "other.pem").write_text(SECRET)

    done = place.run(
        "ls private; cat private/key.pem other.pem; echo x > private/new; rm -rf private other.pem",
        deny=["**/private", "**/*.pem"],
    )

    assert done.stdout == ""
    assert place.names() == {"private", "private/key.pem", "other.pem"}
    assert SECRET in place.run("cat other.pem").stdout, "without the rows it is read"


def test_a_file_api_of_the_same_box_refuses_the_same_paths(repository: Place) -> None:
    (repository.workspace / ".env").write_text(SECRET)

    async def work(box: Sandbox) -> list[str]:
        codes = []
        for path in (".env", ".git/hooks/x", ".vscode/x", "/etc/passwd", "/usr/made"):
            with pytest.raises(Exception) as caught:
                await box.write_file(path, b"evil")
            codes.append(getattr(caught.value, "code", repr(caught.value)))
        await box.write_file("fine/file", "text")
        assert await box.read_file("fine/file") == b"text"
        with suppress(PermissionDenied):
            await box.write_file("../diary", "at most the box's own: the workspace lies in its /tmp")
        return codes

    assert set(repository.in_box(work)) <= {"path_access_denied", "permission_denied"}
    assert "box's own" not in (repository.workspace.parent / "diary").read_text()
    assert (repository.workspace / ".env").read_text() == SECRET


# --- sockets ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def service(place: Place) -> Iterator[str]:
    """A socket in the workspace on which a program of the host listens."""
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(place.workspace, os.O_PATH)
        server.bind(f"/proc/self/fd/{here}/service.sock")  # a socket's name may be short only
        os.close(here)
        os.chmod(place.workspace / "service.sock", 0o777)
        server.listen()
        yield "service.sock"


CONNECT = (
    "python3 -c \"import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('connected')\" "
)


def test_a_service_of_the_host_in_the_workspace_cannot_be_reached(place: Place, service: str) -> None:
    done = place.run(
        f"{CONNECT} {service}; {CONNECT} ./{service}; ln {service} x; {CONNECT} x; mv {service} y; {CONNECT} y"
    )

    assert "connected" not in done.stdout

    assert place.host(CONNECT + service).stdout == "connected\n"


def test_marking_a_service_as_a_placeholder_does_not_open_it_for_the_next_box(place: Place, service: str) -> None:
    os.utime(place.workspace / service, (86_400, 86_400))

    assert "connected" not in place.run(CONNECT + service).stdout


def test_a_socket_of_the_agents_own_works(place: Place) -> None:
    program = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind('own.sock'); s.listen(); c = "
        "socket.socket(socket.AF_UNIX); c.connect('own.sock'); print('own')"
    )

    assert place.run(["/usr/bin/python3", "-c", program]).stdout == "own\n"
