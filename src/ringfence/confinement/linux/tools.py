"""Finds the tools that PATH reaches: a person's programs work inside as they are, and nothing else of a home shows.

Most of PATH lies in the system's directories, which a box sees anyway. The rest lies below somebody's home: version
managers, virtual environments, a directory of links into them. For each such entry the smallest directory is found
that makes its programs run, its tool root. A home directory, `~/.local`, `~/.config` and their like are never roots:
beside programs they hold credentials.

A link that lies in a workspace, or leads through one, may be the agent's: it is never followed, or the next box would
show whatever it points to. The base interpreter of a virtual environment is named by a file that the agent may have
written. It is believed only if what it names is a Python installation.

A long PATH takes longer to search than a box to build, so what was found is believed for some seconds, by every box
whose workspaces lie off the way.

What this does not protect against: a secret that somebody keeps inside a tool's own directory, unless the blacklist
names it.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator

from ringfence.dataclass import dataclass
from ringfence.values.paths import is_below

MANAGERS: frozenset[str] = frozenset(
    {
        ".asdf",
        ".bun",
        ".deno",
        ".fnm",
        ".goenv",
        ".jenv",
        ".nodenv",
        ".nvm",
        ".plenv",
        ".pyenv",
        ".rbenv",
        ".rustup",
        ".rvm",
        ".sdkman",
        ".volta",
        "anaconda3",
        "mambaforge",
        "micromamba",
        "miniconda3",
        "miniforge3",
        "mise",
        "pipx",
        "uv",
    }
)
"""Directories of version managers: programs and what they need, no credentials. Taken whole, wherever they lie."""

COMPANIONS: dict[str, tuple[str, ...]] = {
    ".cargo/bin": (".rustup",),  # the programs there only look up the real ones in the other directory
}
"""What a directory on PATH needs besides itself; both relative to the home."""

_SHARED = frozenset({"", ".local", ".config", ".cache", ".local/share", ".local/state", "bin", "Library"})
"""Directories of a home, relative to it, that hold all sorts of things, so that none may become a tool root."""
_PROGRAMS = frozenset({"bin", "sbin", "Scripts"})
"""Names of directories that hold programs and nothing else."""
_LINKS_MAX = 2000
_DEPTH_MAX = 40  # links in a row, as the kernel has it
_BELIEVED_SECONDS = 5.0
_PYTHON = re.compile(r"python3?(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Tools:
    path: str
    """The PATH for inside."""
    roots: tuple[str, ...]
    """Directories and single programs to show, read-only."""


def find_tools(
    path: str, *, home: str, workspaces: Iterable[str], visible: Iterable[str], denied: Callable[[str], str | None]
) -> Tools:
    """The tools of PATH and of virtual environments in the workspaces.

    Args:
        visible: directories that the box sees anyway.
        denied: the rule that hides a path, if there is one.
    """
    workspaces, visible = tuple(workspaces), tuple(visible)
    key = (path, home, visible, denied)
    found = _believed(key)
    if found is None or any(is_below(step, workspace) for workspace in workspaces for step in found.steps):
        found = _search_path(path, home, visible, workspaces, denied)
        if not any(is_below(step, workspace) for workspace in workspaces for step in found.steps):
            _beliefs[key] = (time.monotonic(), found)
    search = _Search(home, visible, workspaces, denied)
    search.roots = list(found.roots)
    kept = list(found.kept)
    for workspace in workspaces:
        for name in (".venv", "venv", "env", ".env"):
            search.add_environment(os.path.join(workspace, name))
    return Tools(":".join(dict.fromkeys(kept)) or "/usr/local/bin:/usr/bin:/bin", tuple(search.roots))


@dataclass(frozen=True, slots=True)
class _Found:
    roots: tuple[str, ...]
    kept: tuple[str, ...]
    """Entries of PATH that can be seen inside."""
    steps: frozenset[str]
    """Every name on the way to what was found: where none lies in a workspace, no workspace had a say."""


_Key = tuple[str, str, tuple[str, ...], Callable[[str], str | None]]
_beliefs: dict[_Key, tuple[float, _Found]] = {}


def _believed(key: _Key) -> _Found | None:
    now = time.monotonic()
    for old in [other for other, (since, _) in _beliefs.items() if now - since > _BELIEVED_SECONDS]:
        del _beliefs[old]
    return _beliefs[key][1] if key in _beliefs else None


def _search_path(
    path: str, home: str, visible: tuple[str, ...], workspaces: tuple[str, ...], denied: Callable[[str], str | None]
) -> _Found:
    search = _Search(home, visible, workspaces, denied)
    kept: list[str] = []
    for entry in path.split(":"):
        if os.path.isabs(entry) and os.path.isdir(entry):
            search.steps.add(entry)
            search.add_directory(os.path.normpath(entry))
            if search.sees(entry) or any(is_below(entry, workspace) for workspace in workspaces):
                kept.append(entry)
    return _Found(tuple(search.roots), tuple(kept), frozenset(search.steps))


class _Search:
    def __init__(
        self, home: str, visible: tuple[str, ...], workspaces: tuple[str, ...], denied: Callable[[str], str | None]
    ) -> None:
        self._home = home
        self._homes = {home, os.path.realpath(home)}
        self._visible = visible
        self._workspaces = workspaces
        self._denied = denied
        self.roots: list[str] = []
        self.steps: set[str] = set()

    def sees(self, path: str) -> bool:
        return any(is_below(path, known) for known in (*self._visible, *self.roots))

    def add_directory(self, directory: str) -> None:
        """A directory on PATH: its root, what its links lead to, and the base of its virtual environment."""
        self.add_environment(os.path.dirname(directory))
        real = _resolve(directory, self._workspaces, self.steps)
        if real is None or any(is_below(real, known) for known in self._visible):
            return
        self._add(self._root_of(directory))
        if real != directory:
            self._add(self._root_of(real))
        for link in _links(real):
            target = _resolve(link, self._workspaces, self.steps)
            if target is not None and os.path.isfile(target) and os.access(target, os.X_OK):
                self._add(self._root_of_program(target))
        relative = os.path.relpath(directory, self._home)
        for companion in COMPANIONS.get(relative, ()):
            self._add(os.path.join(self._home, companion))

    def add_environment(self, prefix: str) -> None:
        base = _base_of(prefix)
        if base is not None:
            self.steps.add(base)
        if base is not None and not any(is_below(base, workspace) for workspace in self._workspaces):
            self._add(base)

    def _add(self, root: str) -> None:
        if self.sees(root) or not os.path.exists(root) or self._denied(root) is not None:
            return
        if any(is_below(home, root) for home in self._homes) or self._places(root) & (_SHARED - {"bin"}):
            return
        self.roots = [known for known in self.roots if not is_below(known, root)]
        self.roots.append(root)

    def _root_of_program(self, program: str) -> str:
        """The same for what a link leads to. It may lie beside anything, so without a sign it is all that shows."""
        directory = os.path.dirname(program)
        root = self._root_of(directory)
        above, packages, _ = directory.rpartition("/node_modules")
        if packages:
            return above + packages
        return root if root != directory or os.path.basename(directory) in _PROGRAMS else program

    def _root_of(self, directory: str) -> str:
        """The smallest directory that makes the programs in `directory` run."""
        parts = directory.split("/")
        for depth, part in enumerate(parts):
            if part in MANAGERS and depth >= 2:
                return "/".join(parts[: depth + 1])
        prefix = os.path.dirname(directory)
        is_prefix = os.path.basename(directory) in _PROGRAMS and any(
            os.path.exists(os.path.join(prefix, sign))
            for sign in ("pyvenv.cfg", "conda-meta", "lib", "libexec", "lib64")
        )
        return prefix if is_prefix and not self._places(prefix) & _SHARED and prefix != "/" else directory

    def _places(self, path: str) -> set[str]:
        """Where it lies as seen from the home, by either name."""
        return {"" if path == home else os.path.relpath(path, home) for home in self._homes}


def _resolve(path: str, workspaces: tuple[str, ...], steps: set[str]) -> str | None:
    """Where a path leads; None if it lies in a workspace or leads through one, or nowhere. Notes every step."""
    done, todo, links = "/", [part for part in reversed(path.split("/")) if part], 0
    while todo:
        part = todo.pop()
        done = os.path.normpath(os.path.join(done, part))
        steps.add(done)
        if any(is_below(done, workspace) for workspace in workspaces):
            return None
        try:
            target = os.readlink(done)
        except OSError:
            continue  # no link; what is not there is found out by whoever asks for it
        links += 1
        if links > _DEPTH_MAX:
            return None
        done = "/" if target.startswith("/") else os.path.dirname(done)
        todo += [part for part in reversed(target.split("/")) if part not in ("", ".")]
    return done


def _links(directory: str) -> Iterator[str]:
    """The links in a directory."""
    try:
        entries = os.scandir(directory)
    except OSError:
        return
    with entries:
        for count, entry in enumerate(entries):
            if count > _LINKS_MAX:
                return
            if entry.is_symlink():
                yield entry.path


def _base_of(prefix: str) -> str | None:
    """The installation that a virtual environment was made from, if it is one and names a real one."""
    try:
        # The agent may have made it a fifo, on which a plain open would wait for ever.
        descriptor = os.open(os.path.join(prefix, "pyvenv.cfg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        text = os.fsdecode(os.read(descriptor, 65536)) if is_file else ""
    finally:
        os.close(descriptor)
    match = re.search(r"^home\s*=\s*(\S.*?)\s*$", text, re.MULTILINE)
    if match is None or not os.path.isabs(match[1]):
        return None
    programs = os.path.realpath(match[1])
    base = os.path.dirname(programs)
    try:
        has_program = any(_PYTHON.fullmatch(name) for name in os.listdir(programs))
        has_library = any(
            name.startswith("python3") and os.path.isfile(os.path.join(base, "lib", name, "os.py"))
            for name in os.listdir(os.path.join(base, "lib"))
        )
    except OSError:
        return None
    return base if has_program and has_library else None
