"""Runs one module to its end, in this process, on its standard streams."""

import _thread
import os
import struct
import time

import wasm
from beneath import open_beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
CODE, BUNDLES = os.environ.get("RUNNER_CODE", ""), os.environ.get("RUNNER_BUNDLES", "")
TRAPPED = 134  # as a process that aborted
OUT_OF_TIME = 152  # as one that the kernel ended for its CPU time
NOT_STARTED = 126
_LOOK_SECONDS = 0.02


class Machine:
    """wasmtime, and code that was loaded ahead."""

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace
        self.engine = wasm.Engine(wasm.load(f"{HERE}/_libwasmtime.so"))
        self._loaded: dict[str, Any] = {}

    def code(self, name: str, *, is_component: bool) -> "Any":
        if name not in self._loaded:
            self._loaded[name] = self.engine.load(f"{CODE}/{name}", is_component=is_component)
        return self._loaded[name]

    def run(self, stage: "dict[str, Any]", directory: str) -> int:
        """One stage of a line, as a program; its exit code."""
        try:
            return self._run(stage, directory)
        except wasm.Exit as fault:
            return fault.code
        except wasm.Trap as fault:
            if "interrupt" in str(fault):
                complain(stage, "its CPU time is over")
                return OUT_OF_TIME
            complain(stage, f"trap: {fault}")
            return TRAPPED
        except wasm.Refused as fault:
            complain(stage, str(fault))
            return NOT_STARTED

    def _run(self, stage: "dict[str, Any]", directory: str) -> int:
        kind, argv = stage["kind"], [os.fsencode(word) for word in stage["argv"]]
        is_component = kind == "python"
        code = self.code(stage["code"], is_component=is_component)
        place = os.path.normpath(f"/workspace/{directory}")
        env = [(os.fsencode(name), os.fsencode(value)) for name, value in stage["env"]]
        if kind != "module":
            env.append((b"PWD", os.fsencode(place)))
        is_writable = stage["writable"]
        workspace = os.fsencode(self.workspace)
        directories = [(workspace, b"/workspace", is_writable)] if is_writable is not None else []
        here = -1
        if is_writable is not None and not is_component:
            # Modules have no working directory of their own; a relative name is looked up in what is called `.`.
            here = self._below(directory)
            directories.append((b"/proc/self/fd/%d" % here, b".", is_writable))
        if stage["bundle"]:
            directories.append((os.fsencode(f"{BUNDLES}/{stage['bundle']}"), b"/bundle", False))
        if kind == "javascript":
            with open(f"{HERE}/javascript.mjs", "rb") as file:
                argv = [b"qjs", b"-m", b"-e", file.read(), b"--", *argv[1:]]
        store = wasm.Store(
            self.engine, argv, env, directories, stage["memory"], stage["tables"], is_component=is_component
        )
        if here >= 0:
            os.close(here)  # wasmtime has one of its own
        if stage["cpu"]:
            self.limit_cpu(stage["cpu"])
        if is_component:
            return int(wasm.ComponentInstance(store, code).call(b"exec"))
        instance = wasm.ModuleInstance(store, code)
        if kind == "javascript":
            instance.call(b"_initialize")
            table = struct.pack(f"<{len(argv) + 1}I", *(instance.put(word) for word in argv), 0)
            return 1 if instance.call(b"qjs_init_argv", len(argv), instance.put(table), results=1) else 0
        instance.call(b"_start")
        return 0

    def _below(self, directory: str) -> int:
        """A directory of the workspace, by a descriptor: its name may have become a link that leads out.

        Raises:
            wasm.Refused: it is not there, or leads out.
        """
        try:
            top = os.open(self.workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                found = open_beneath(top, directory, os.O_PATH | os.O_DIRECTORY)
            finally:
                os.close(top)
        except OSError as fault:
            raise wasm.Refused(f"{directory}: {fault.strerror}") from None
        return found

    def limit_cpu(self, seconds: float) -> None:
        """Have it ended when this process has used so much more than now."""
        _thread.start_new_thread(self._watch, (time.process_time() + seconds,))

    def _watch(self, end: float) -> None:
        while time.process_time() < end:
            time.sleep(_LOOK_SECONDS)
        self.engine.stop()


def complain(stage: "dict[str, Any]", text: str) -> None:
    os.write(2, f"{os.path.basename(stage['argv'][0])}: {text}\n".encode("utf-8", "backslashreplace"))
