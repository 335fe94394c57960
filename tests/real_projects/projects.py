"""Which projects: pinned, from the registries, each with what it needs and how its own tests are run."""

from dataclasses import dataclass
from enum import StrEnum


class Registry(StrEnum):
    PYPI = "PyPI"
    """The tests come with the source distribution, the package itself as a wheel."""
    NPM = "npm"
    DEBIAN = "Debian"
    """A C project: configured, built and tested in the box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    name: str
    version: str
    registry: Registry
    command: str
    """Run by a shell in the project's directory. For pytest: its arguments alone."""
    needs: tuple[str, ...] = ()
    """Further packages of the same registry, pinned."""
    is_installed: bool = False
    """Whether the tests come with the wheel, so that nothing else is needed."""
    drop: tuple[str, ...] = ()
    """Directories of the source distribution that would stand before the installed package."""
    files: tuple[tuple[str, str], ...] = ()
    """(name, content) of further files in its directory."""
    why: str = ""
    """What it is here for."""
    different: tuple[tuple[str, str], ...] = ()
    """(test, or the beginning of its name; why it cannot be the same in a box): these are not compared."""


NO_SYS = "a box has no /sys"
ORPHANS = "a command's first process adopts its orphans, which are children then"
FINDER = ("test_against_findmnt", "test_comparisons", "test_disk_partitions_mocked")

PYTEST = ("pytest==8.4.2", "pytest-timeout==2.4.0")

PROJECTS: tuple[Project, ...] = (
    Project(
        name="psutil",
        version="7.2.2",
        registry=Registry.PYPI,
        needs=PYTEST,
        drop=("psutil",),
        command="tests --ignore tests/test_memleaks.py",
        why="/proc, processes, users, network interfaces",
        different=(
            *((f"tests/test_linux.py::TestRootFsDeviceFinder::{name}", NO_SYS) for name in FINDER),
            ("tests/test_linux.py::TestSystemCPUCount", NO_SYS),
            ("tests/test_linux.py::TestSystemNetIfStats::test_mtu", NO_SYS),
            ("tests/test_misc.py::TestMisc::test_serialization", NO_SYS),
            ("tests/test_misc.py::TestWrapNumbers::test_cache_clear_public_apis", NO_SYS),
            ("tests/test_system.py::TestDiskAPIs::test_disk_io_counters", NO_SYS),
            ("tests/test_linux.py::TestSystemNetIfAddrs::test_ips", "the loopback of a box has two addresses"),
            ("tests/test_process.py::TestProcess::test_rlimit_infinity", "limits cannot be raised in a box"),
            ("tests/test_process.py::TestProcess::test_children", ORPHANS),
            ("tests/test_process.py::TestProcessWait::test_wait_non_children", ORPHANS),
            ("tests/test_process.py::TestProcess::test_username", "the bare half names another user than it is"),
            ("tests/test_process_all.py::TestFetchAllProcesses::test_all", "looks at all processes of the machine"),
        ),
    ),
    Project(
        name="numpy",
        version="2.4.1",
        registry=Registry.PYPI,
        needs=(*PYTEST, "hypothesis==6.148.0", "charset-normalizer==3.4.4"),
        is_installed=True,
        command="--pyargs numpy.linalg numpy.fft numpy.lib numpy.ma numpy.testing",
        why="native threads, large memory, memory maps",
    ),
    Project(
        name="loky",
        version="3.7.0",
        registry=Registry.PYPI,
        needs=(*PYTEST, "cloudpickle==3.1.2", "psutil==7.2.2"),
        drop=("loky",),
        command="tests --timeout 300 -k 'not memory_leak and not large_data'",
        why="process pools, named semaphores, resource trackers",
    ),
    Project(
        name="flask",
        version="3.1.3",
        registry=Registry.PYPI,
        needs=PYTEST,
        drop=("src",),
        command="tests",
        why="imports, paths",
    ),
    Project(
        name="uvloop",
        version="0.22.1",
        registry=Registry.PYPI,
        needs=(*PYTEST, "psutil==7.2.2", "aiohttp==3.13.2", "pyOpenSSL==25.3.0"),
        drop=("uvloop",),
        command="tests --timeout 300 --ignore tests/test_dns.py",  # which asks name servers of the Internet
        why="libuv: sockets of every kind, signals, processes",
    ),
    Project(
        name="aiohttp",
        version="3.13.2",
        registry=Registry.PYPI,
        needs=(
            *(*PYTEST, "pytest-mock==3.15.1", "pytest-xdist==3.8.0", "pytest-cov==7.0.0", "trustme==1.2.1"),
            *("blockbuster==1.5.29", "freezegun==1.5.5", "re-assert==1.1.0", "isal==1.8.0", "proxy.py==2.4.10"),
            *("zlib-ng==1.0.0", "Brotli==1.2.0", "time-machine==3.6.0", "setuptools-git==1.2"),
        ),
        drop=("aiohttp",),
        command="tests --timeout 60 --no-cov -n 0 --ignore-glob 'tests/test_benchmarks*'",
        why="servers and clients on the loopback",
    ),
    Project(
        name="anyio",
        version="4.12.0",
        registry=Registry.PYPI,
        needs=(
            *(*PYTEST, "pytest-mock==3.15.1", "trio==0.32.0", "psutil==7.2.2", "uvloop==0.22.1"),
            *(
                "trustme==1.2.1",
                "blockbuster==1.5.29",
                "truststore==0.10.5",
                "exceptiongroup==1.3.1",
                "hypothesis==6.148.0",
            ),
        ),
        drop=("src",),
        command="tests",
        why="getaddrinfo, unix sockets, processes",
        different=(("tests/test_fileio.py::TestPath::test_is_block_device", "a box has no block devices"),),
    ),
    Project(
        name="watchdog",
        version="6.0.0",
        registry=Registry.PYPI,
        needs=(*PYTEST, "pytest-cov==7.0.0", "flaky==3.8.1", "eventlet==0.40.4"),
        drop=("src",),
        command="tests --timeout 60",
        why="inotify",
    ),
    Project(
        name="tornado",
        version="6.5.4",
        registry=Registry.PYPI,
        needs=PYTEST,
        is_installed=True,
        command="--pyargs tornado.test",
        why="name look-ups, servers, processes",
    ),
    Project(
        name="zod",
        version="4.6.7",
        registry=Registry.NPM,
        needs=("vitest@3.2.4",),
        files=(
            (
                "vitest.config.mjs",
                "export default { test: { include: ['src/v4/**/*.test.ts'], watch: false } };\n",
            ),
        ),
        command="npx vitest run --reporter=json --outputFile=outcomes.json",
        why="vitest: node's workers, esbuild",
    ),
    Project(
        name="zlib",
        version="1:1.2.13.dfsg-1",
        registry=Registry.DEBIAN,
        command="./configure && make -j2 && make test",
        why="a compiler, make, what was just built",
    ),
)
