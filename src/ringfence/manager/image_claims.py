"""The two points of the checklists about the image that containers are made of.

They apply where containers are used (`RINGFENCE_TOOL_ENGINE=docker`, or an image is named); boxes of the native engine
need no image. Whether an image has known faults is for a scanner to say: trivy or grype, where one is installed.
"""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ringfence.dataclass import dataclass
from ringfence.errors import RingfenceError
from ringfence.manager.claims import ClaimItem, ClaimState
from ringfence.manager.image import check_image, image_in_use, list_images, recipe
from ringfence.values.sizes import show_age

_NO_IMAGE: Final = "containers are not used here, and boxes of the native engine need no image"
_LOOK: Final = "for containers: ringfence image check"
_SCAN_SECONDS: Final = 600.0
"""A scanner fetches its list of faults first."""
_STALE_SECONDS: Final = 30 * 24 * 3600.0
"""Debian's security team mends faults within days; an image of last month lacks them."""


@dataclass(frozen=True, slots=True)
class _Scanner:
    """A program that knows of faults in images."""

    name: str
    options: tuple[str, ...]
    """Before the image's name."""
    names: Callable[[Any], list[str]]
    """The grave faults in what it printed."""


def _trivy(document: Any) -> list[str]:
    return [str(each["VulnerabilityID"]) for part in document["Results"] for each in part.get("Vulnerabilities") or ()]


def _grype(document: Any) -> list[str]:
    faults = (match["vulnerability"] for match in document["matches"])
    return [str(fault["id"]) for fault in faults if fault["severity"] in ("High", "Critical")]


_SCANNERS: Final = (
    _Scanner(
        "trivy",
        (
            "image",
            "--quiet",
            "--format",
            "json",
            "--scanners",
            "vuln",
            "--severity",
            "HIGH,CRITICAL",
            "--ignore-unfixed",
        ),
        _trivy,
    ),
    _Scanner("grype", ("--quiet", "--output", "json", "--only-fixed"), _grype),
)


async def image_is_built_and_scanned(environ: Mapping[str, str]) -> ClaimItem:
    """The first point before deployment."""
    claim = "the image is built and scanned"
    try:
        used = image_in_use(environ)
        if used is None:
            return ClaimItem(claim, ClaimState.UNKNOWN, _NO_IMAGE, _LOOK)
        report = await check_image(used.url, used.image)
    except RingfenceError as fault:
        return ClaimItem(claim, ClaimState.NO, fault.message, fault.hint)
    if not report.fit:
        unfit = "; ".join(f"not so: {check.claim} ({check.found})" for check in report.checks if not check.ok)
        return ClaimItem(claim, ClaimState.NO, f"{used.image}: {unfit}", f"ringfence image check {used.image}")
    found, said, hint = await asyncio.to_thread(_scan, used.image)
    return ClaimItem(claim, found, f"{used.image} is there and boxes can be made of it; {said}", hint)


async def image_is_up_to_date(environ: Mapping[str, str]) -> ClaimItem:
    """The second point of the periodic ones."""
    claim = "the image is up to date"
    try:
        used = image_in_use(environ)
        if used is None:
            return ClaimItem(claim, ClaimState.UNKNOWN, _NO_IMAGE, _LOOK)
        listed = await list_images(used.url)
        newest = recipe().tags[1]
    except RingfenceError as fault:
        return ClaimItem(claim, ClaimState.NO, fault.message, fault.hint)
    mine = next((each for each in listed if used.image in each.tags), None)
    if mine is None:
        return ClaimItem(
            claim, ClaimState.UNKNOWN, f"{used.image} was not made by `ringfence image build`", "ask whoever made it"
        )
    age = time.time() - mine.created
    evidence = f"{used.image} was built {show_age(age)}"
    if used.image != newest:
        evidence += f"; the image of this version is {newest}"
    is_fresh = age < _STALE_SECONDS
    return ClaimItem(
        claim,
        ClaimState.YES if is_fresh else ClaimState.NO,
        evidence,
        "" if is_fresh else "ringfence image build --again",
    )


def _scan(image: str) -> tuple[ClaimState, str, str]:
    scanner = next((each for each in _SCANNERS if shutil.which(each.name)), None)
    if scanner is None:
        return ClaimState.UNKNOWN, "not scanned: neither trivy nor grype is installed", "install one of them"
    try:
        done = subprocess.run(
            [scanner.name, *scanner.options, image], capture_output=True, timeout=_SCAN_SECONDS, check=False
        )
        faults = sorted(set(scanner.names(json.loads(done.stdout))))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as fault:
        return (
            ClaimState.UNKNOWN,
            f"{scanner.name} gave no answer ({type(fault).__name__})",
            f"run {scanner.name} by hand",
        )
    if faults:
        some = ", ".join(faults[:3]) + (f" and {len(faults) - 3} more" if len(faults) > 3 else "")
        return (
            ClaimState.NO,
            f"{scanner.name} finds grave faults that are fixed in newer versions: {some}",
            "ringfence image build --again",
        )
    return ClaimState.YES, f"{scanner.name} finds no grave fault that is fixed in a newer version", ""
