"""The runner: a process inside a box that runs modules, never the manager's own.

run.py line WORKSPACE JOB       run what the manager has taken apart
run.py file WORKSPACE           the same, read from descriptor 9
run.py wait WORKSPACE CODE...   load wasmtime and code ahead, then the same, from descriptor 9 up to a zero
run.py session WORKSPACE JOB    Python that keeps its globals, over the socket at descriptor 9
run.py compile FROM TO KIND     machine code of a module or component
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True


def main(argv: "list[str]") -> int:
    verb, place = argv[1], argv[2]
    if verb == "compile":
        return compile_file(place, argv[3], argv[4])
    from programs import Machine

    if verb == "line":
        return run_line(Machine(place), argv[3])
    if verb == "file":
        with open(9, "rb") as file:
            return run_line(Machine(place), file.read().decode("utf-8", "surrogateescape"))
    if verb == "wait":
        return wait(Machine(place), argv[3:])
    import json

    from session import serve

    return serve(Machine(place), json.loads(argv[3]))


def run_line(machine: "object", text: str) -> int:
    import json

    from lines import Line

    job = json.loads(text)
    return Line(machine, job["directory"]).run(job["items"])  # type: ignore[arg-type]  # imported late


def wait(machine: "object", codes: "list[str]") -> int:
    import json  # noqa: F401  loaded ahead

    import lines  # noqa: F401

    for code in codes:
        machine.code(code, is_component=code.startswith("python"))  # type: ignore[attr-defined]
    text = b""
    while not text.endswith(b"\0"):
        piece = os.read(9, 65536)
        if not piece:
            return 0
        text += piece
    os.close(9)
    return run_line(machine, text[:-1].decode("utf-8", "surrogateescape"))


def compile_file(source: str, target: str, kind: str) -> int:
    import wasm
    from programs import HERE

    with open(source, "rb") as file:
        code = file.read()
    try:
        made = wasm.Engine(wasm.load(f"{HERE}/_libwasmtime.so")).compile(code, is_component=kind == "component")
    except wasm.Refused as fault:
        os.write(2, f"{fault}\n".encode("utf-8", "backslashreplace"))
        return 3
    with open(target, "wb") as file:
        file.write(made)
    return 0


if __name__ == "__main__":
    status = 125
    try:
        status = main(sys.argv)
    finally:
        if sys.exc_info()[1] is None:
            os._exit(status)  # threads of wasmtime need not be waited for
