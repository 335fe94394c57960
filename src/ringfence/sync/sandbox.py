"""The blocking faces of one sandbox: its calls, its processes, its files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringfence.approvals.base import ConfirmationService
from ringfence.audit.violations import ViolationStore
from ringfence.engines.base import Process as AsyncProcess
from ringfence.manager.files import BoxFiles as AsyncBoxFiles
from ringfence.manager.options import SandboxOptions
from ringfence.manager.sandbox import Sandbox as AsyncSandbox
from ringfence.policy.terms import Terms
from ringfence.sync.browsing import BrowserRouter
from ringfence.sync.facade import Facade, Opened, blocking, giving, inside, like, streaming, unwrapped
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Wall
from ringfence.values.limits import Limits
from ringfence.values.outcome import Ending


class Process(Facade[AsyncProcess]):
    """A command that goes on while others run in the same sandbox; from `Sandbox.start`."""

    @property
    def id(self) -> int:
        return self._wrapped.id

    @property
    def command(self) -> str:
        return self._wrapped.command

    @property
    def alive(self) -> bool:
        return self._wrapped.alive

    @property
    def ending(self) -> Ending | None:
        """How it ended; None while it runs."""
        return self._wrapped.ending

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        return self._wrapped.seconds

    read = inside(AsyncProcess.read)
    write = blocking(AsyncProcess.write)
    close_input = inside(AsyncProcess.close_input)
    resize = inside(AsyncProcess.resize)
    signal = inside(AsyncProcess.signal)
    kill = inside(AsyncProcess.kill)
    wait = blocking(AsyncProcess.wait)
    wait_end = blocking(AsyncProcess.wait_end)


class BoxFiles(Facade[AsyncBoxFiles]):
    """The files that a sandbox's commands see, by any path: `Sandbox.files`."""

    read = blocking(AsyncBoxFiles.read)
    read_text = blocking(AsyncBoxFiles.read_text)
    read_for_search = blocking(AsyncBoxFiles.read_for_search)
    stream = streaming(AsyncBoxFiles.stream)
    stat = blocking(AsyncBoxFiles.stat)
    exists = blocking(AsyncBoxFiles.exists)
    list = blocking(AsyncBoxFiles.list)
    realpath = blocking(AsyncBoxFiles.realpath)
    write = blocking(AsyncBoxFiles.write)
    mkdir = blocking(AsyncBoxFiles.mkdir)
    remove = blocking(AsyncBoxFiles.remove)
    rename = blocking(AsyncBoxFiles.rename)

    @property
    def workspace(self) -> Path:
        """Where relative paths begin."""
        return self._wrapped.workspace


_as_process: Callable[[AsyncProcess], Process] = Process.over


class Sandbox(Opened[AsyncSandbox]):
    """A walled-in place for an agent's commands, for code that does not use asyncio. Use it in a `with`.

        with Sandbox(workspace="project") as box:
            done = box.shell("pytest -q", timeout="60s")
            for piece in box.stream("make"):
                print(piece)
            server = box.start("python3 -m http.server")

    Arguments and results are those of `ringfence.Sandbox`. It works inside a running event loop (a notebook) and from
    any thread. `on_output` is called in another thread than the caller's.
    """

    @like(AsyncSandbox.__init__)
    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(AsyncSandbox(*args, **unwrapped(fields)))

    def close(self) -> None:
        """End everything that runs in it; returns when nothing of it is left."""
        self._close()

    open = blocking(AsyncSandbox.open)
    warm = blocking(AsyncSandbox.warm)

    # --- commands -----------------------------------------------------------------------------------------------------

    shell = blocking(AsyncSandbox.shell)
    exec = blocking(AsyncSandbox.exec)
    python = blocking(AsyncSandbox.python)
    code = blocking(AsyncSandbox.code)
    execute = blocking(AsyncSandbox.execute)
    stream = streaming(AsyncSandbox.stream)
    start = giving(AsyncSandbox.start, _as_process)
    interrupt = inside(AsyncSandbox.interrupt)
    restart = blocking(AsyncSandbox.restart)
    contexts = inside(AsyncSandbox.contexts)

    def processes(self) -> tuple[Process, ...]:
        """What `start` started, and what a call left running, whether it still runs or has ended since."""
        return tuple(map(_as_process, self._portal.call(self._wrapped.processes)))

    # --- checks -------------------------------------------------------------------------------------------------------

    decide = inside(AsyncSandbox.decide)
    check_path = inside(AsyncSandbox.check_path)
    check_command = inside(AsyncSandbox.check_command)
    check_network = inside(AsyncSandbox.check_network)
    terms_of = inside(AsyncSandbox.terms_of)
    refused_inside = inside(AsyncSandbox.refused_inside)
    current_usage = inside(AsyncSandbox.current_usage)
    network_authority = blocking(AsyncSandbox.network_authority)
    network_refusals = blocking(AsyncSandbox.network_refusals)

    @property
    def name(self) -> str:
        """Which engine the commands run in."""
        return self._wrapped.name

    @property
    def id(self) -> str:
        """What metrics call it; never used twice."""
        return self._wrapped.id

    @property
    def workspace(self) -> Path:
        return self._wrapped.workspace

    @property
    def published(self) -> dict[int, str]:
        """Where the host reaches servers inside, by their port there; of boxes that stand."""
        return self._wrapped.published

    @property
    def options(self) -> SandboxOptions:
        """What was asked of it, or of every box."""
        return self._wrapped.options

    @property
    def violations(self) -> ViolationStore:
        """What was refused in it; of a pool, in all its sandboxes."""
        return self._wrapped.violations

    @property
    def notes(self) -> tuple[str, ...]:
        """What the configuration said that was not taken as written."""
        return self._wrapped.notes

    @property
    def terms(self) -> Terms | None:
        """What the policy says about its tool and role; None without a policy."""
        return self._wrapped.terms

    @property
    def confirmation(self) -> ConfirmationService | None:
        """Who is asked where the policy says so."""
        return self._wrapped.confirmation

    @property
    def wall(self) -> Wall | None:
        """The wall that stands; None before the first command."""
        return self._wrapped.wall

    @property
    def grant(self) -> Grant:
        """What it may do."""
        return self._wrapped.grant

    @property
    def resource_limits(self) -> Limits:
        return self._wrapped.resource_limits

    @property
    def is_active(self) -> bool:
        """Whether a box is standing and takes commands."""
        return self._wrapped.is_active

    @property
    def idle_seconds(self) -> float:
        """How long ago the last call of it ended; 0 while one runs."""
        return self._wrapped.idle_seconds

    # --- files --------------------------------------------------------------------------------------------------------

    read_file = blocking(AsyncSandbox.read_file)
    write_file = blocking(AsyncSandbox.write_file)
    host_files = inside(AsyncSandbox.host_files)

    @property
    def browser(self) -> BrowserRouter:
        """Its browser, in a box beside its own; see `ringfence.Sandbox.browser`."""
        return BrowserRouter.over(self._wrapped.browser)

    @property
    def files(self) -> BoxFiles:
        """The files that commands see, wherever they lie, read and changed as a command would."""
        return BoxFiles.over(self._wrapped.files)
