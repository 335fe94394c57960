"""Python that keeps its globals: cells come over a socket, each a call of the same instance (docs/box-protocol.md).

An interrupt ends the instance with what it keeps: a component that was stopped in the middle can never be called
again, and nobody inside looks for a signal.
"""

import _signal
import _thread
import json
import os

import wasm
from programs import Machine, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CHANNEL = 9
_INTERRUPTED = 130
_TRAPPED = 134


def serve(machine: Machine, setting: "dict[str, Any]") -> int:
    """Run cells until the socket closes, or the guest cannot go on."""
    code = machine.code(setting["code"], is_component=True)
    env = [(os.fsencode(name), os.fsencode(value)) for name, value in setting["env"]]
    directories = [(os.fsencode(machine.workspace), b"/workspace", setting["writable"])]
    store = wasm.Store(machine.engine, [b"python3"], env, directories, setting["memory"], is_component=True)
    instance = wasm.ComponentInstance(store, code)
    _stop_on_interrupt(machine)
    _send("ready", b"wasi")
    rest = b""
    while True:
        while b"\n" not in rest:
            piece = os.read(_CHANNEL, 65536)
            if not piece:
                return 0
            rest += piece
        line, _, rest = rest.partition(b"\n")
        _, length, call, *place = line.split(b" ")
        while len(rest) < int(length):
            piece = os.read(_CHANNEL, 65536)
            if not piece:
                return 0
            rest += piece
        text, rest = rest[: int(length)], rest[int(length) :]
        directory = bytes.fromhex(place[0].decode()) if place else b""
        try:
            told = json.loads(instance.call(b"cell", text.decode("utf-8", "replace").encode(), directory))
        except wasm.Exit as fault:
            return fault.code
        except wasm.Trap as fault:
            if "interrupt" in str(fault):
                return _INTERRUPTED
            complain({"argv": ["python3"]}, f"trap: {fault}")
            return _TRAPPED
        if told.get("left"):
            return int(told["exit"])
        for kind, parts in told["shown"]:
            _send(kind, b"".join(_part(name, value) for name, value in parts.items()))
        _send("done", b"%b %d" % (call, told["exit"] & 0xFF))


def _stop_on_interrupt(machine: Machine) -> None:
    """The kernel's handler writes into a pipe even while the instance runs; a thread reads there."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    _signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _signal.signal(_signal.SIGINT, lambda *_: None)

    def wait() -> None:
        os.read(reading, 1)
        machine.engine.stop()

    _thread.start_new_thread(wait, ())


def _part(name: str, value: str) -> bytes:
    data = value.encode("utf-8", "backslashreplace")
    return b"%b %d\n%b" % (name.encode(), len(data), data)


def _send(kind: str, body: bytes) -> None:
    data = memoryview(b"%b %d\n%b" % (kind.encode(), len(body), body))
    while data:
        data = data[os.write(_CHANNEL, data) :]
