"""Runs a command in a job object. A program: WALL_SECONDS MEMORY_BYTES PROCESSES -- COMMAND [ARGUMENT ...].

The command is started suspended, put into the job, then let go, so that nothing that it starts is outside. Closing the
job ends the tree, however this program itself ends. Where the job cannot be made, nothing runs; where the tree cannot
be ended by it, `taskkill /T /F` is tried, too.
"""

import ctypes
import subprocess
import sys
from typing import Any

KILL_ON_CLOSE, LIMIT_PROCESSES, LIMIT_MEMORY, DIE_ON_FAULT = 0x2000, 0x8, 0x200, 0x400
CREATE_SUSPENDED = 0x4
_EXTENDED_LIMITS = 9
TIMED_OUT = 124


class _Basic(ctypes.Structure):
    _fields_ = (
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("least_working_set", ctypes.c_size_t),
        ("most_working_set", ctypes.c_size_t),
        ("active_processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority", ctypes.c_uint32),
        ("scheduling", ctypes.c_uint32),
    )


class Limits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("basic", _Basic),
        ("io", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


def limits(memory_bytes: int, processes: int) -> Limits:
    found = Limits()
    found.basic.flags = KILL_ON_CLOSE | LIMIT_PROCESSES | LIMIT_MEMORY | DIE_ON_FAULT
    found.basic.active_processes = processes
    found.job_memory = memory_bytes
    return found


def run(kernel: Any, ntdll: Any, seconds: float, bounds: Limits, argv: list[str]) -> int:
    """The command's exit code; 124 if its time was over."""
    job = kernel.CreateJobObjectW(None, None)
    if not job or not kernel.SetInformationJobObject(
        job, _EXTENDED_LIMITS, ctypes.byref(bounds), ctypes.sizeof(bounds)
    ):
        raise OSError("the job object could not be made")
    process = subprocess.Popen(argv, creationflags=CREATE_SUSPENDED)
    handle = int(process._handle)  # type: ignore[attr-defined]  # Windows only
    try:
        if not kernel.AssignProcessToJobObject(job, handle):
            raise OSError("the command could not be put into its job object")
        ntdll.NtResumeProcess(handle)
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    finally:
        ended = kernel.TerminateJobObject(job, 1)
        if not ended and process.poll() is None:
            subprocess.run(["taskkill", "/T", "/F", "/PID", str(process.pid)], capture_output=True, check=False)
        kernel.CloseHandle(job)
        if process.poll() is None:
            process.kill()


if __name__ == "__main__":
    wall, memory, most, _, *words = sys.argv[1:]
    kernel32, nt = ctypes.WinDLL("kernel32", use_last_error=True), ctypes.WinDLL("ntdll")  # type: ignore[attr-defined]
    sys.exit(run(kernel32, nt, float(wall), limits(int(memory), int(most)), words))
