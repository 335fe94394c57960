"""Build hook: compiles native/*.c into one static executable, src/ringfence/_native/ringfence-box.

The helper is linked statically, because it also runs inside boxes (Docker images, gVisor) that hold no C library of
ours. The first toolchain wins that really links a static program against the kernel's headers, in this order:
`musl-gcc` (the smallest result), `cc`, `gcc`, and last `zig cc` from the PyPI package `ziglang`, which is asked for as
a build dependency only when none of the others works, so that a machine without a compiler builds too.

A failed compile fails the build, with the compiler's own words: a package that lacks the helper would be a weaker
product that looks the same. RINGFENCE_BUILD_WITHOUT_HELPER=1 asks for exactly that. Platforms other than Linux build
nothing.
"""

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HELPER = Path("src/ringfence/_native/ringfence-box")
OPT_OUT = "RINGFENCE_BUILD_WITHOUT_HELPER"

# Pinned: what compiles the helper is part of what is trusted.
ZIG_REQUIREMENT = "ziglang==0.15.2"

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

# As much as the helper needs of a toolchain: a static C library and the kernel's headers.
PROBE = """\
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdio.h>
int main(void) { return printf("%d", SECCOMP_RET_KILL_PROCESS) < 0; }
"""


class CompileError(Exception):
    """The compiler said no; the message holds its words."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    command: tuple[str, ...]

    def build(self, sources: list[Path], target: Path) -> None:
        """Compile and link `sources` into `target`, which is replaced in one step: a running helper keeps its own file.

        Raises:
            CompileError: the compiler failed or cannot be started.
        """
        with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch:
            made = Path(scratch, target.name)
            argv = [*self.command, *FLAGS, "-o", str(made), *map(str, sources)]
            # zig caches below HOME otherwise, which need not be writable where packages are built.
            caches = {"ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch}
            try:
                done = subprocess.run(argv, capture_output=True, text=True, errors="replace", env=os.environ | caches)
            except OSError as error:
                raise CompileError(f"{self.command[0]}: {error.strerror}") from error
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


def toolchain_from_pypi() -> Toolchain:
    """`zig cc`, with the C library that it brings along.

    Raises:
        CompileError: the package is not installed (a build without isolation installs no build dependencies).
    """
    if importlib.util.find_spec("ziglang") is None:
        raise CompileError(
            f"no C compiler that links statically; install gcc and libc6-dev, or `pip install {ZIG_REQUIREMENT}`"
        )
    return Toolchain((sys.executable, "-m", "ziglang", "cc", "-target", f"{platform.machine()}-linux-musl"))


def helper_is_wanted() -> bool:
    return sys.platform == "linux" and os.environ.get(OPT_OUT) != "1"


class HelperBuildHook(BuildHookInterface[BuilderConfig]):
    """Runs for wheels and editable installs; a source distribution carries the sources."""

    def dependencies(self) -> list[str]:
        return [ZIG_REQUIREMENT] if helper_is_wanted() and toolchain_of_this_machine() is None else []

    def clean(self, versions: list[str]) -> None:
        Path(self.root, HELPER).unlink(missing_ok=True)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not helper_is_wanted():
            # A helper of an earlier build would be packed with sources that it was not built from.
            self.clean([version])
            self.app.display_warning("building without the native helper")
            return
        self._compile()
        build_data["artifacts"].append(f"/{HELPER}")  # git ignores it, hence hatchling would
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{platform.machine()}"

    def _compile(self) -> None:
        sources = sorted(Path(self.root, "native").glob("*.c"))
        target = Path(self.root, HELPER)
        target.parent.mkdir(exist_ok=True)
        try:
            if not sources:
                raise CompileError("there is no native/*.c")
            toolchain = toolchain_of_this_machine() or toolchain_from_pypi()
            toolchain.build(sources, target)
        except CompileError as error:
            self.app.abort(f"cannot build the native helper:\n{error}\n({OPT_OUT}=1 builds without it)")
        self.app.display_info(f"built {HELPER} with {toolchain.command[0]}")
