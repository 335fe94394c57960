"""Build hooks: native/*.c becomes a static program, src/ringfence/_native/ringfence-box, and once more a library for
interpreters, ringfence-zygote.so; native/front/*.c becomes another program, the script `ringfence`; README.md becomes
metadata.

The helper is linked statically, because it also runs inside boxes (Docker images, gVisor) that hold no C library of
ours. The first toolchain wins that really links a static program against the kernel's headers, in this order:
`musl-gcc` (the smallest result), `cc`, `gcc`, and last `zig cc` from the PyPI package `ziglang`, which is asked for as
a build dependency only when none of the others works, so that a machine without a compiler builds too.
RINGFENCE_BUILD_MACHINE=aarch64 (or x86_64) has zig build for that machine, wherever the build runs: what is
published is made so.

A static program needs nothing of the system that it runs on, so the wheel is one for glibc and for musl.

A failed compile fails the build, with the compiler's own words: a package that lacks the helper could run nothing.
Platforms other than Linux build nothing.

The library is for interpreters of glibc, which is what nearly all are: it is linked dynamically, against the oldest
version where zig builds it. Where it cannot be built or loaded, boxes start their interpreters themselves, and nothing
else is different; so it fails no build.

Where the front is built, the console script that the installer writes is called `ringfence-python`: its first line is
how the front finds the interpreter of its environment. Elsewhere the console script is `ringfence` itself, with
`ringfence-shell` beside it.
"""

import functools
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

HELPER = Path("src/ringfence/_native/ringfence-box")
FRONT = Path("src/ringfence/_native/ringfence")
LIBRARY = Path("src/ringfence/_native/ringfence-zygote.so")

# The front once more: by this name it is a shell (`ringfence hook run`), for settings that take one program.
SHELL = Path("src/ringfence/_native/ringfence-shell")

# The small tools of WASI boxes, a WebAssembly module; who has no compiler for it goes without.
USERLAND = Path("src/ringfence/_native/userland.wasm")
USERLAND_SOURCES = "native/userland"
USERLAND_FLAGS = (
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror=implicit-function-declaration",
    # The usual 64 KiB lie behind the data, and a deep tree would write over it; before the data, too much is a trap.
    "-Wl,-z,stack-size=1048576,--stack-first,--strip-all",
)

# Which sources become which program.
PROGRAMS = {HELPER: "native", FRONT: "native/front"}

ENTRY_POINT = "ringfence.cli.app:main"
SHELL_ENTRY_POINT = "ringfence.cli.app:main_as_shell"

# Pinned: what compiles the helper is part of what is trusted.
ZIG_REQUIREMENT = "ziglang==0.15.2"

MACHINE = "RINGFENCE_BUILD_MACHINE"

# Those whose system calls our filters know.
MACHINES = ("x86_64", "aarch64")

# The oldest systems that installers have names for on both: glibc 2.17 (by two names) and musl 1.2.
SYSTEMS = ("manylinux_2_17", "manylinux2014", "musllinux_1_2")

FLAGS = (
    "-std=c11",
    "-Os",
    "-static",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wvla",
    "-Wformat=2",
    "-Wstrict-prototypes",
    # What is a warning to C is a wrong call at run time.
    "-Werror=implicit-function-declaration",
    "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
    "-Werror=return-type",
    "-Werror=format-security",
    # Hardening: the helper reads what comes out of a box.
    "-fstack-protector-strong",
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=2",
    "-fno-strict-aliasing",
    "-Wl,-z,relro,-z,now,-z,noexecstack",
    "-s",
)

LIBRARY_FLAGS = (*(flag for flag in FLAGS if flag != "-static"), "-shared", "-fPIC", "-fvisibility=hidden")

# As much as the helper needs of a toolchain: a static C library and the kernel's headers.
PROBE = """\
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdio.h>
int main(void) { return printf("%d", SECCOMP_RET_KILL_PROCESS) < 0; }
"""


# zig compiles the C library first and keeps a file open for each of its parts: 1,024 are too few, 1,536 are enough.
TOO_FEW_FILES = (
    "zig needs more open files than this process may have: raise the limit (ulimit -n 2048), or install gcc and "
    "libc6-dev, or install a wheel, which needs no compiler"
)


class CompileError(Exception):
    """The compiler said no; the message holds its words."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    command: tuple[str, ...]
    flags: tuple[str, ...] = FLAGS

    def build(self, sources: list[Path], target: Path) -> None:
        """Compile and link `sources` into `target`, which is replaced in one step: a running helper keeps its own file.

        Raises:
            CompileError: the compiler failed or cannot be started.
        """
        with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch:
            made = Path(scratch, target.name)
            argv = [*self.command, *self.flags, "-o", str(made), *map(str, sources)]
            # zig caches below HOME otherwise, which need not be writable where packages are built.
            caches = {"ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch}
            try:
                done = subprocess.run(argv, capture_output=True, text=True, errors="replace", env=os.environ | caches)
            except OSError as error:
                raise CompileError(f"{self.command[0]}: {error.strerror}") from error
            if done.returncode != 0 and "FdQuotaExceeded" in done.stderr:
                raise CompileError(TOO_FEW_FILES)
            if done.returncode != 0:
                raise CompileError(f"$ {' '.join(argv)}\n{done.stdout}{done.stderr}".rstrip())
            if done.stderr:
                print(done.stderr, file=sys.stderr)
            made.chmod(0o755)
            made.replace(target)

    def fault(self) -> str | None:
        """Why this toolchain cannot build the helper; None if it can."""
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch, "probe.c")
            source.write_text(PROBE)
            try:
                self.build([source], Path(scratch, "probe"))
            except CompileError as error:
                return str(error)
        return None


@functools.cache
def toolchain_of_this_machine() -> Toolchain | None:
    """The first compiler on PATH that can build the helper."""
    for name in ("musl-gcc", "cc", "gcc"):
        if (compiler := shutil.which(name)) is None:
            continue
        # Debian's musl-gcc hides the kernel's headers along with glibc's; looked up last, they do not shadow musl's.
        multiarch = f"/usr/include/{platform.machine()}-linux-gnu"
        kernel_headers = ("-idirafter", "/usr/include", "-idirafter", multiarch) if name == "musl-gcc" else ()
        toolchain = Toolchain((compiler, *kernel_headers))
        fault = toolchain.fault()
        if fault is None:
            return toolchain
        print(f"{name} cannot build the helper:\n{fault}", file=sys.stderr)
    return None


def toolchain_from_pypi(machine: str) -> Toolchain:
    """`zig cc`, with the C library that it brings along.

    Raises:
        CompileError: the package is not installed (a build without isolation installs no build dependencies).
    """
    if importlib.util.find_spec("ziglang") is None:
        raise CompileError(
            f"no C compiler that links statically; install gcc and libc6-dev, or `pip install {ZIG_REQUIREMENT}`"
        )
    return Toolchain((sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-musl"))


def toolchain_of_library(machine: str | None) -> Toolchain | None:
    """What builds the library; None if nothing does."""
    if machine is None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        return Toolchain((compiler,), LIBRARY_FLAGS) if compiler and platform.libc_ver()[0] == "glibc" else None
    if importlib.util.find_spec("ziglang") is None:
        return None
    return Toolchain((sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.2.17"), LIBRARY_FLAGS)


def machine_asked_for() -> str | None:
    """
    Raises:
        CompileError: it is none that we build for.
    """
    machine = os.environ.get(MACHINE) or None
    if machine not in (None, *MACHINES):
        raise CompileError(f"{MACHINE} is {machine!r}, which is none of {', '.join(MACHINES)}")
    return machine


def helper_is_wanted() -> bool:
    return sys.platform == "linux" or machine_asked_for() is not None


def wheel_tag(machine: str) -> str:
    """Any Python 3, any Linux of that machine."""
    if machine not in MACHINES:
        return f"py3-none-linux_{machine}"
    return "py3-none-" + ".".join(f"{system}_{machine}" for system in SYSTEMS)


class HelperBuildHook(BuildHookInterface[BuilderConfig]):
    """Runs for wheels and editable installs; a source distribution carries the sources."""

    def dependencies(self) -> list[str]:
        if not helper_is_wanted():
            return []
        return [ZIG_REQUIREMENT] if machine_asked_for() or toolchain_of_this_machine() is None else []

    def clean(self, versions: list[str]) -> None:
        for made in (*PROGRAMS, SHELL, LIBRARY, USERLAND):
            Path(self.root, made).unlink(missing_ok=True)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not helper_is_wanted():
            # A helper of an earlier build would be packed with sources that it was not built from.
            self.clean([version])
            self.app.display_warning("building without the native helper")
            return
        self._compile()
        build_data["artifacts"] += [f"/{HELPER}", f"/{LIBRARY}"]  # git ignores them, hence hatchling would
        if self._compile_userland():
            build_data["artifacts"].append(f"/{USERLAND}")
        build_data["shared_scripts"][str(FRONT)] = "ringfence"
        build_data["shared_scripts"][str(SHELL)] = "ringfence-shell"
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag(machine_asked_for() or platform.machine())

    def _compile(self) -> None:
        try:
            if (machine := machine_asked_for()) is not None:
                toolchain = toolchain_from_pypi(machine)
            else:
                toolchain = toolchain_of_this_machine() or toolchain_from_pypi(platform.machine())
            for program, directory in PROGRAMS.items():
                target = Path(self.root, program)
                target.parent.mkdir(exist_ok=True)
                if not (sources := sorted(Path(self.root, directory).glob("*.c"))):
                    raise CompileError(f"there is no {directory}/*.c")
                toolchain.build(sources, target)
                self.app.display_info(f"built {program} with {toolchain.command[0]}")
            shutil.copy2(Path(self.root, FRONT), Path(self.root, SHELL))
        except CompileError as error:
            self.app.abort(f"cannot build the native helper:\n{error}")
        self._compile_library()

    def _compile_library(self) -> None:
        target = Path(self.root, LIBRARY)
        target.unlink(missing_ok=True)  # one of other sources would be worse than none
        toolchain = toolchain_of_library(machine_asked_for())
        try:
            if toolchain is not None:
                toolchain.build(sorted(Path(self.root, PROGRAMS[HELPER]).glob("*.c")), target)
        except CompileError as error:
            self.app.display_warning(f"without {LIBRARY.name}: {error}")

    def _compile_userland(self) -> bool:
        """Whether the tools of WASI boxes were built; without them such boxes have Python, JavaScript and bundles."""
        target = Path(self.root, USERLAND)
        target.unlink(missing_ok=True)
        sources = sorted(map(str, Path(self.root, USERLAND_SOURCES).glob("*.c")))
        has_zig = importlib.util.find_spec("ziglang") is not None
        clang = (("clang", "--target=wasm32-wasi"),) if shutil.which("clang") else ()
        zig = ((sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi"),) if has_zig else ()
        # What is published is built by zig, which is pinned; elsewhere Debian's clang and wasi-libc are at hand.
        for command in (*zig, *clang) if machine_asked_for() else (*clang, *zig):
            with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch:
                made = Path(scratch, target.name)
                argv = [*command, *USERLAND_FLAGS, "-o", str(made), *sources]
                caches = {"ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch}
                done = subprocess.run(argv, capture_output=True, text=True, errors="replace", env=os.environ | caches)
                if done.returncode == 0:
                    made.chmod(0o644)
                    made.replace(target)
                    self.app.display_info(f"built {USERLAND} with {command[0]}")
                    return True
                last = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
                self.app.display_warning(f"{command[0]} cannot build {USERLAND}: {last[0]}")
        self.app.display_warning(f"without {USERLAND}: apt-get install clang lld wasi-libc libclang-rt-14-dev-wasm32")
        return False


class ProjectHook(MetadataHookInterface):
    """The console script's name, and README.md for an index, which has none of the files that its links name."""

    def update(self, metadata: dict[str, Any]) -> None:
        own = {"ringfence": ENTRY_POINT, "ringfence-shell": SHELL_ENTRY_POINT}
        metadata["scripts"] = {"ringfence-python": ENTRY_POINT} if helper_is_wanted() else own
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme_for_an_index(text, source)}


def readme_for_an_index(text: str, source: str | None) -> str:
    """Links to files of the project lead to `source`; without an address their words stay, and pictures go."""
    picture, link = r"!\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)", r"(?<!!)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)"
    if source is None:
        return re.sub(link, r"\1", re.sub(picture, "", text))
    base = source.rstrip("/")
    return re.sub(link, rf"[\1]({base}/blob/main/\2)", re.sub(picture, rf"![\1]({base}/raw/main/\2)", text))
