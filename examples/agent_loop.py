"""An agent loop: the model asks for commands, the sandbox runs them, the model sees what came of it.

    python examples/agent_loop.py [DIRECTORY]

`scripted_model` stands in for a language model, so that this runs without one; put your own call there. Output is
shown as it comes, Ctrl-C ends the command and not the loop, and what is refused goes back to the model with its reason.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterator

import ringfence

SECONDS_PER_COMMAND = 60


def scripted_model() -> Iterator[str]:
    """What a model might want to run, in turn."""
    yield "echo 'print(6 * 7)' > answer.py && python3 answer.py"
    yield "cat ~/.ssh/id_rsa"  # refused: the wall has no such file
    yield "sleep 60"  # cancelled after a second
    yield "rm answer.py && ls -A | wc -l"


async def run_command(sandbox: ringfence.Sandbox, command: str) -> ringfence.Result:
    """Run one command; show its output as it comes, and return how it ended."""
    async for piece in sandbox.stream(command, timeout=SECONDS_PER_COMMAND):
        if isinstance(piece, ringfence.Result):
            return piece
        sys.stdout.write(piece.data.decode("utf-8", "replace"))
    raise AssertionError("a stream ends with its result")


def report(result: ringfence.Result) -> str:
    """What the model is told: how it ended, and what was refused, by which rule."""
    lines = [f"exit code {result.exit_code}", *map(str, result.violations)]
    return "\n".join(lines if result.ok else [*lines, f"error: {result.error}"])


async def main(directory: str) -> None:
    async with ringfence.Sandbox(workspace=directory) as sandbox:
        for command in scripted_model():
            print(f"\n$ {command}")
            working = asyncio.create_task(run_command(sandbox, command))
            if command.startswith("sleep"):  # a person presses Ctrl-C, or the agent changes its mind
                asyncio.get_running_loop().call_later(1, working.cancel)
            try:
                print(report(await working))
            except asyncio.CancelledError:
                print("cancelled: the command and all that it started are gone")
            except ringfence.RingfenceError as fault:  # the machine's or the caller's fault, not the command's
                print(f"[{fault.code}] {fault}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else scratch))
