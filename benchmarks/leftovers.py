"""What the search for leftovers costs in a workspace of many files, against listing its names.

python -m benchmarks.leftovers [files] [rounds]
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.snapshots import make_tree, seconds
from ringfence.workspace.leftovers.scan import Since, find_leftovers

FILES = 100_000
ROUNDS = 5


def list_names(top: str) -> int:
    """The cheapest way to see every name."""
    count = 0
    todo = [top]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
    return count


def stat_files(top: str) -> int:
    """The same, and the status of each: no way to know what changed is cheaper."""
    count = 0
    todo = [top]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                count += entry.stat(follow_symlinks=False).st_nlink > 0
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
    return count


def main() -> None:
    files, rounds = (int(text) for text in (*sys.argv[1:3], *(FILES, ROUNDS)[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as place:
        make_tree(Path(place) / "tree", files)
        time.sleep(0.1)
        begin = time.time_ns()
        took: dict[str, list[float]] = {"list names": [], "list and stat": [], "find leftovers": []}
        for _ in range(rounds):
            took["list names"].append(seconds(lambda: list_names(place)))
            took["list and stat"].append(seconds(lambda: stat_files(place)))
            took["find leftovers"].append(seconds(lambda: find_leftovers(place, Since(ns=begin))))
    base = statistics.median(took["list names"])
    print(f"{files} files, {rounds} rounds; 1.00 is {base:.3f} s")
    for name, times in took.items():
        print(f"  {name:16} {statistics.median(times) / base:6.2f}")


if __name__ == "__main__":
    main()
