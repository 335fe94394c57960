"""What a snapshot costs: the first of a tree, the tenth after few changes, and `cp -a`, as ratios.

python -m benchmarks.snapshots [files] [changes]
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ringfence.workspace.snapshots.store import SnapshotStore

FILES = 20_000
CHANGES = 10
_PER_DIRECTORY = 40


def make_tree(top: Path, files: int) -> list[Path]:
    """Files of source code's size, in directories of a project's shape."""
    made: list[Path] = []
    for number in range(files):
        group = number // _PER_DIRECTORY
        directory = top / f"package{group % 20}" / f"module{group}"
        if number % _PER_DIRECTORY == 0:
            directory.mkdir(parents=True)
        file = directory / f"file{number}.py"
        file.write_bytes(f"# {number}\n".encode() * (number % 300 + 20))
        made.append(file)
    return made


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(files: int = FILES, changes: int = CHANGES, *, durable: bool = True) -> dict[str, float]:
    """Seconds of each step."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as place:
        top = Path(place)
        made = make_tree(top / "tree", files)
        store = SnapshotStore(top / "store", durable=durable)
        os.sync()
        time.sleep(0.2)  # files are remembered once they have been left alone for a moment
        found = {"cp -a": seconds(lambda: subprocess.run(["cp", "-a", top / "tree", top / "copy"], check=True))}
        os.sync()
        found["first snapshot"] = seconds(lambda: store.save(top / "tree", "s1"))
        for number in range(2, 11):
            for file in made[number * 7 :: max(files // changes, 1)][:changes]:
                file.write_bytes(file.read_bytes() + b"# changed\n")
            time.sleep(0.2)
            os.sync()
            found["tenth snapshot"] = seconds(lambda number=number: store.save(top / "tree", f"s{number}"))  # type: ignore[misc]  # a default argument binds the number
        found["restore beside and swap"] = seconds(lambda: store.restore("s1", top / "tree"))
        store.save(top / "tree", "again")
        time.sleep(0.2)
        store.save(top / "tree", "remembered")
        found["restore in place"] = seconds(lambda: store.restore("s10", top / "tree", in_place=True))
        found["delete"] = seconds(lambda: store.delete("s5"))
        shutil.rmtree(top / "copy")
    return found


def main() -> None:
    files, changes = (int(text) for text in (*sys.argv[1:3], *(FILES, CHANGES)[len(sys.argv) - 1 :]))
    found = measure(files, changes)
    first, copy = found["first snapshot"], found["cp -a"]
    print(f"{files} files, {changes} changes between snapshots; 1.00 is {copy:.2f} s of cp -a")
    for name, took in found.items():
        print(f"  {name:26} {took / copy:7.2f} of cp -a   {took / first:7.2f} of the first snapshot")


if __name__ == "__main__":
    main()
