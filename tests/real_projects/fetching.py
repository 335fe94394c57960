"""Brings a project here, once: tests unpacked, what it needs installed, from the registries of pip, npm and apt."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.real_projects.projects import Project, Registry

SECONDS = 900
PLUGIN = "ringfence_outcomes"
_PLUGIN_TEXT = '''"""Writes down how each test ended."""

import json

ENDED = {}


def pytest_runtest_logreport(report):
    if report.failed or report.nodeid not in ENDED or (report.when == "call" and ENDED[report.nodeid] != "failed"):
        ENDED[report.nodeid] = report.outcome
    if report.skipped and ENDED[report.nodeid] != "failed":
        ENDED[report.nodeid] = "skipped"


def pytest_collectreport(report):
    if report.failed:
        ENDED[report.nodeid] = "failed"


def pytest_sessionfinish():
    with open("outcomes.json", "w") as file:
        json.dump(ENDED, file)
'''


class FetchError(Exception):
    """A registry did not give it, or it could not be installed; the message holds the program's own words."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A project that can be run: copies of `tree`, with `path` before the usual programs."""

    project: Project
    tree: Path
    path: tuple[str, ...] = ()


def fetch(project: Project, cache: Path) -> Ready:
    """The project, from the cache if it was fetched before.

    Raises:
        FetchError: it could not be fetched.
    """
    version = project.version.replace(":", "_")
    place = cache / f"{project.name}-{version}"
    done = place / "done"
    wanted = repr(project)
    if not done.exists() or done.read_text() != wanted:
        shutil.rmtree(place, ignore_errors=True)
        (place / "tree").mkdir(parents=True)
        _FETCH[project.registry](project, place)
        for name, content in project.files:
            (place / "tree" / name).write_text(content)
        done.write_text(wanted)
    path = (str(place / "venv" / "bin"),) if project.registry is Registry.PYPI else ()
    return Ready(project, place / "tree", path)


def _from_pypi(project: Project, place: Path) -> None:
    # Not from our own interpreter's environment: what is installed there is no part of the project.
    _call([_system_python(), "-m", "venv", str(place / "venv")])
    pip = [str(place / "venv" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    pinned = f"{project.name}=={project.version}"
    _call([*pip, "install", "--only-binary", project.name, pinned, *project.needs])
    if not project.is_installed:
        _call([*pip, "download", "--no-deps", "--no-binary", project.name, "-d", str(place / "sdist"), pinned])
        _unpack(next((place / "sdist").iterdir()), place / "tree")
        for name in project.drop:
            shutil.rmtree(place / "tree" / name)
    (place / "tree" / f"{PLUGIN}.py").write_text(_PLUGIN_TEXT)


def _from_npm(project: Project, place: Path) -> None:
    _call(["npm", "pack", "--silent", f"{project.name}@{project.version}"], cwd=place)
    _unpack(next(place.glob("*.tgz")), place / "tree")
    _call(["npm", "install", "--silent", "--no-save", "--no-audit", "--no-fund", *project.needs], cwd=place / "tree")


def _from_debian(project: Project, place: Path) -> None:
    """By apt, with lists of its own: the machine's usually leave sources out, and are root's."""
    for name in ("state/lists/partial", "cache/archives/partial", "parts", "source"):
        (place / name).mkdir(parents=True)
    (place / "all.sources").write_text("\n".join(_debian_sources()))
    places = {
        "Dir::Etc::SourceList": "all.sources",
        "Dir::Etc::SourceParts": "parts",
        "Dir::State": "state",
        "Dir::Cache": "cache",
    }
    apt = ["apt-get", "-q", "-o", "Dir::State::status=/var/lib/dpkg/status", "-o", "APT::Sandbox::User="]
    apt += [word for name, value in places.items() for word in ("-o", f"{name}={place / value}")]
    _call([*apt, "update"])
    _call([*apt, "source", "--download-only", f"{project.name}={project.version}"], cwd=place / "source")
    _unpack(next(file for file in (place / "source").glob("*.orig.tar.*") if file.suffix != ".asc"), place / "tree")
    shutil.rmtree(place / "state")


def _debian_sources() -> Iterator[str]:
    """The machine's own places, asked for sources."""
    for file in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        for line in file.read_text().splitlines():
            yield "Types: deb-src" if line.startswith("Types:") else line
        yield ""


_FETCH = {Registry.PYPI: _from_pypi, Registry.NPM: _from_npm, Registry.DEBIAN: _from_debian}


def _system_python() -> str:
    return os.path.realpath(sys.executable)


def _unpack(archive: Path, into: Path) -> None:
    """Without the directory that everything in it lies in."""
    _call(["tar", "xf", str(archive), "-C", str(into), "--strip-components=1", "--no-same-owner"])


def _call(argv: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False)
    if done.returncode:
        raise FetchError(f"{' '.join(argv)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
