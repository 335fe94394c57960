"""Archives of images as daemons give them out, old and new, whole and broken."""

import io
import json
import tarfile
from collections.abc import Iterable

import pytest

from ringfence.errors import InitializationFailed
from ringfence.manager.set_id import set_id_programs

pytestmark = pytest.mark.req("B8")


def entry(name: str, mode: int = 0o755, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.mode, made.type, made.linkname = mode, kind, link
    return made


def archive(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as out:
        for info, content in members:
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def layer(*entries: tarfile.TarInfo) -> bytes:
    return archive((each, b"") for each in entries)


def image(*layers: bytes, manifest_first: bool = False) -> bytes:
    names = [f"{index}/layer.tar" for index in range(len(layers))]
    manifest = (entry("manifest.json"), json.dumps([{"Config": "c.json", "Layers": names}]).encode())
    members = [*((entry(name), content) for name, content in zip(names, layers, strict=True)), (entry("c.json"), b"{}")]
    return archive([manifest, *members] if manifest_first else [*members, manifest])


def found(saved: bytes) -> tuple[str, ...]:
    return set_id_programs(io.BytesIO(saved))


@pytest.mark.parametrize("manifest_first", [True, False], ids=["manifest first", "manifest last"])
def test_set_uid_and_set_gid_files_are_found(manifest_first: bool) -> None:
    saved = image(
        layer(entry("./usr/bin/su", 0o4755), entry("usr/bin/wall", 0o2755), entry("usr/bin/ls")),
        manifest_first=manifest_first,
    )

    assert found(saved) == ("/usr/bin/su", "/usr/bin/wall")


def test_directories_with_the_bit_are_no_programs() -> None:
    assert found(image(layer(entry("var/mail", 0o2775, tarfile.DIRTYPE)))) == ()


def test_a_later_layer_counts() -> None:
    assert found(image(layer(entry("a", 0o4755)), layer(entry("a", 0o755)))) == ()
    assert found(image(layer(entry("a", 0o755)), layer(entry("a", 0o4755)))) == ("/a",)


@pytest.mark.parametrize("whiteout", ["d/.wh.su", ".wh.d", "d/.wh..wh..opq", ".wh..wh..opq"])
def test_what_a_later_layer_removes_is_gone(whiteout: str) -> None:
    below = layer(entry("d/su", 0o4755), entry("dd/su", 0o755))

    assert found(image(below, layer(entry(whiteout)))) == ()
    assert found(image(below, layer(entry("dd/.wh.su")))) == ("/d/su",)


def test_what_a_whiteout_removes_may_come_back_in_the_same_layer() -> None:
    assert found(image(layer(entry("d/x")), layer(entry("d/.wh..wh..opq"), entry("d/su", 0o4755)))) == ("/d/su",)


def test_a_second_name_of_a_file_is_found_too() -> None:
    saved = image(layer(entry("su", 0o4755), entry("again", 0o755, tarfile.LNKTYPE, "su")))

    assert found(saved) == ("/again", "/su")


def test_capabilities_of_a_file_count_like_the_bit() -> None:
    capable = entry("ping")
    capable.pax_headers = {"SCHILY.xattr.security.capability": "\x01"}

    assert found(image(layer(capable))) == ("/ping",)


def test_a_layer_that_is_a_link_to_another_is_read_as_that() -> None:
    names = ["a/layer.tar", "b/layer.tar"]
    saved = archive(
        [
            (entry("a/layer.tar"), layer(entry("su", 0o4755))),
            (entry("b/layer.tar", kind=tarfile.SYMTYPE, link="../a/layer.tar"), b""),
            (entry("manifest.json"), json.dumps([{"Layers": names}]).encode()),
        ]
    )

    assert found(saved) == ("/su",)


@pytest.mark.parametrize(
    "saved",
    [
        b"",
        b"no archive at all" * 100,
        archive([(entry("manifest.json"), b"[]")]),
        archive([(entry("manifest.json"), b"{")]),
        archive([(entry("manifest.json"), b'[{"Layers": ["missing"]}]')]),
        archive([(entry("0/layer.tar"), layer(entry("su", 0o4755)))]),
        image(layer(entry("su", 0o4755)))[:1500],
    ],
    ids=["empty", "noise", "no image", "broken", "a layer is missing", "no manifest", "cut off"],
)
def test_what_is_no_archive_of_an_image_is_an_error(saved: bytes) -> None:
    """Never "there are none"."""
    with pytest.raises(InitializationFailed):
        found(saved)
