"""Where a server is, and where its token comes from: nothing that others read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringfence.client.address import Address, parse_address, server_token, server_url
from ringfence.errors import InvalidArgument, InvalidConfig, NotFound, PermissionDenied


@pytest.mark.parametrize(
    ("url", "address", "authority"),
    [
        ("unix:///run/a%20b.sock", Address(socket="/run/a b.sock"), "localhost"),
        ("http://127.0.0.1:8765", Address(host="127.0.0.1", port=8765), "127.0.0.1:8765"),
        ("http://localhost", Address(host="localhost", port=80), "localhost"),
        ("http://[::1]:9/", Address(host="::1", port=9), "[::1]:9"),
        (
            "https://box.example/base/",
            Address(host="box.example", port=443, is_encrypted=True, base="/base"),
            "box.example",
        ),
    ],
)
def test_a_url_says_where_a_server_is(url: str, address: Address, authority: str) -> None:
    assert parse_address(url) == address
    assert parse_address(url).authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ringfence.sock",
        "unix://run/ringfence.sock",
        "unix:relative.sock",
        "ftp://127.0.0.1",
        "http://",
        "http://127.0.0.1:port",
        "http://127.0.0.1?token=secret",
        "http://127.0.0.1#secret",
    ],
)
def test_what_is_no_place_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_address(url)
    assert "secret" not in str(caught.value)


def test_a_token_travels_unencrypted_to_no_other_machine() -> None:
    with pytest.raises(InvalidArgument, match="unencrypted"):
        parse_address("http://box.example:8765")
    assert parse_address("https://box.example:8765").is_encrypted  # the same, encrypted


def test_a_token_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_address("https://me:hunter2@box.example")
    assert "hunter2" not in str(caught.value)


def test_the_environment_names_server_and_token(tmp_path: Path) -> None:
    assert server_url({}) is None
    assert server_token({}) is None
    assert server_url({"RINGFENCE_URL": "unix:///a"}) == "unix:///a"
    assert server_token({"RINGFENCE_TOKEN": "rf_abc"}) == "rf_abc"
    with pytest.raises(InvalidConfig, match="holds no token"):
        server_token({"RINGFENCE_TOKEN": "rf abc"})


def test_a_token_file_is_private(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("rf_abc\n")
    environ = {"RINGFENCE_TOKEN_FILE": str(file)}

    os.chmod(file, 0o640)
    with pytest.raises(PermissionDenied, match="others may read it"):
        server_token(environ)

    os.chmod(file, 0o600)
    assert server_token(environ) == "rf_abc"
    with pytest.raises(InvalidConfig, match="both set"):
        server_token(environ | {"RINGFENCE_TOKEN": "rf_other"})
    with pytest.raises(NotFound):
        server_token({"RINGFENCE_TOKEN_FILE": str(tmp_path / "none")})
