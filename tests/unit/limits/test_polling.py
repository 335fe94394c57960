"""Polling: reads this very process, whose numbers are known."""

import mmap
import os
import resource
import signal
import subprocess
import sys

import pytest

from ringfence.limits import polling, rlimits
from ringfence.limits.polling import Polling, processes
from ringfence.values.limits import Limit, Limits


@pytest.mark.req("B6", "C9")
def test_memory_that_is_touched_shows_in_the_reading_and_in_the_peak() -> None:
    holder = Polling(1 << 40)
    before = holder.read(os.getpid()).memory_bytes
    with mmap.mmap(-1, 32 << 20) as held:  # fresh pages: the heap may have some left from before
        held.write(b"x" * (32 << 20))
        now = holder.read(os.getpid()).memory_bytes

    assert now - before > 24 << 20
    assert holder.peak_memory_bytes() >= now
    holder.start_command()
    assert holder.peak_memory_bytes() == 0


def test_a_memory_file_counts_although_no_page_of_it_is_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "_SUSPICIOUS_BYTES", -(1 << 60))
    holder = Polling(1 << 40)
    before = holder.read(os.getpid()).memory_bytes
    descriptor = os.memfd_create("hidden")
    try:
        os.posix_fallocate(descriptor, 0, 16 << 20)  # pages of the file and of nothing else, as a buffer would add
        twin = os.dup(descriptor)
        now = holder.read(os.getpid()).memory_bytes
        os.close(twin)
    finally:
        os.close(descriptor)

    assert 12 << 20 < now - before < 28 << 20  # once, although two descriptors lead to it


def test_cpu_time_grows() -> None:
    holder = Polling(1 << 40)
    before = holder.read(os.getpid()).cpu_seconds
    used = resource.getrusage(resource.RUSAGE_SELF)
    while resource.getrusage(resource.RUSAGE_SELF).ru_utime - used.ru_utime < 0.03:
        sum(range(1000))

    assert holder.read(os.getpid()).cpu_seconds > before


def test_a_process_that_is_gone_reads_as_nothing() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)

    reading = Polling(1 << 40).read(child)

    assert (reading.cpu_seconds, reading.memory_bytes) == (0, 0)
    assert processes(child) == [child]


def test_the_tree_holds_the_children() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        assert child in processes(os.getpid())
    finally:
        os.close(reading)
        os.close(writing)
        os.waitpid(child, 0)


def test_polling_says_that_it_holds_no_memory_by_itself() -> None:
    assert Limit.MEMORY not in Polling(1 << 40).enforces
    assert mmap.PAGESIZE == polling._PAGE


@pytest.mark.req("B6", "C9")
def test_every_limit_that_a_process_can_carry_is_among_the_words() -> None:
    cpu, seconds, *words = rlimits.words(Limits(cpu_seconds=0.2, file_bytes=7, open_files=8, processes=9))
    triples = [words[at : at + 3] for at in range(0, len(words), 3)]

    assert {verb for verb, _, _ in triples} == {"rlimit"}
    values = {int(which): int(value) for _, which, value in triples}
    assert (cpu, int(seconds)) == ("cpu", 2)  # above the limit: the watch, which measures better, comes first
    assert values[resource.RLIMIT_FSIZE] == 7
    assert values[resource.RLIMIT_NOFILE] == 8
    assert values[resource.RLIMIT_NPROC] == 9
    assert values[resource.RLIMIT_CORE] == 0


_SHARERS = """
import os, signal
ballast = b"x" * (48 << 20)
for _ in range(6):
    if os.fork() == 0:
        signal.pause()
        os._exit(0)
print("ready", flush=True)
signal.pause()
"""


def test_pages_that_processes_share_do_not_pass_the_limit_together() -> None:
    with subprocess.Popen([sys.executable, "-c", _SHARERS], stdout=subprocess.PIPE, process_group=0) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"ready\n"

            counted_whole = Polling(1 << 40).read(parent.pid).memory_bytes
            divided = Polling(200 << 20).read(parent.pid).memory_bytes
        finally:
            os.killpg(parent.pid, signal.SIGKILL)

    assert counted_whole > 7 * (48 << 20)
    assert divided < counted_whole / 3
