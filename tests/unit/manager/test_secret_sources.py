"""Sources give values and show none; what is declared is read strictly."""

import asyncio
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ringfence.egress.base import SecretValue
from ringfence.egress.secrets.minting import Mint, TokenRequest, TokenResponse
from ringfence.egress.secrets.oauth import ClientCredentials
from ringfence.egress.secrets.placeholders import SHAPES
from ringfence.errors import InvalidArgument, InvalidConfig, NotInstalled
from ringfence.manager.secret_presets import PRESETS
from ringfence.manager.secret_sources import (
    LONGEST_BYTES,
    CommandSource,
    DescriptorSource,
    EnvironmentSource,
    FileSource,
    KeyringSource,
    SourceFailed,
)
from ringfence.manager.secrets import SecretSources, parse_secret
from ringfence.policy.document import Mark
from ringfence.policy.hosts import HostRule
from ringfence.values.network import SecretPlace, SecretStyle

VALUE = "ghp_" + "a1B2c3D4e5F6" * 3
ENVIRONMENT = {"PATH": os.environ["PATH"], "GH_TOKEN": VALUE, "API_KEY": "0123456789"}


def read(source: Any) -> SecretValue:
    return asyncio.run(source.read())


def a_file(directory: Path, text: str = VALUE + "\n", mode: int = 0o600) -> Path:
    path = directory / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


# --- sources ----------------------------------------------------------------------------------------------------------


def test_a_variable() -> None:
    assert read(EnvironmentSource("GH_TOKEN", ENVIRONMENT)).value == VALUE.encode()
    with pytest.raises(SourceFailed, match="NOTHING"):
        read(EnvironmentSource("NOTHING", ENVIRONMENT))


def test_the_pair_of_aws() -> None:
    pair = {"AWS_ACCESS_KEY_ID": "AKIAX", "AWS_SECRET_ACCESS_KEY": "sss"}

    assert read(EnvironmentSource("AWS_*", pair)).value == b"AKIAX:sss"
    assert read(EnvironmentSource("AWS_*", {**pair, "AWS_SESSION_TOKEN": "t"})).value == b"AKIAX:sss:t"
    with pytest.raises(SourceFailed):
        read(EnvironmentSource("AWS_*", {"AWS_ACCESS_KEY_ID": "AKIAX"}))


def test_a_file_of_ours(tmp_path: Path) -> None:
    assert read(FileSource(str(a_file(tmp_path)))).value == VALUE.encode()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644])
def test_a_file_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(SourceFailed, match="others"):
        read(FileSource(str(a_file(tmp_path, mode=mode))))


@pytest.mark.root
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    os.chown(path, 12345, 12345)

    with pytest.raises(SourceFailed, match="somebody else"):
        read(FileSource(str(path)))


def test_a_file_that_the_box_may_write_is_refused_also_through_a_link(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    inside = a_file(workspace)
    link = tmp_path / "link"
    link.symlink_to(inside)

    assert read(FileSource(str(link))).value == VALUE.encode()
    for path in (inside, link):
        with pytest.raises(SourceFailed, match="the box may write"):
            read(FileSource(str(path), (str(workspace),)))
    assert read(FileSource(str(inside), (str(workspace) + "-other",))).value == VALUE.encode()


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)

    for path, why in ((tmp_path, "regular"), (fifo, "regular"), (tmp_path / "none", "No such file")):
        with pytest.raises(SourceFailed, match=why):
            read(FileSource(str(path)))
    with pytest.raises(SourceFailed, match="too large"):
        read(FileSource(str(a_file(tmp_path, "x" * (LONGEST_BYTES + 1)))))


def test_a_descriptor_is_read_once_and_kept() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, VALUE.encode() + b"\n")
    os.close(theirs)
    source = DescriptorSource(ours)

    assert read(source).value == read(source).value == VALUE.encode()
    assert VALUE not in repr(source)
    with pytest.raises(OSError):
        os.fstat(ours)
    source.wipe()
    assert set(read(source).value) == {0}


def test_a_descriptor_that_is_not_there_is_refused() -> None:
    with pytest.raises(SourceFailed, match="Bad file descriptor"):
        read(DescriptorSource(987))


def a_command(*argv: str, **changes: Any) -> CommandSource:
    return CommandSource(argv, environment=ENVIRONMENT, **changes)


def test_a_command_has_no_shell_and_a_time_to_live() -> None:
    found = read(a_command("printf", "%s", "$HOME;echo x", ttl_seconds=60.0))

    assert found.value == b"$HOME;echo x"
    assert 55 < found.good_until - time.monotonic() <= 60


def test_a_command_runs_away_from_the_workspace_with_our_environment() -> None:
    assert read(a_command("sh", "-c", 'pwd; echo "$API_KEY"')).value == b"/\n0123456789"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"echo {VALUE}; echo {VALUE} >&2; exit 3", "ended with 3"),
        (f"echo {VALUE}; kill -9 $$", "ended with -9"),
        (f"echo {VALUE}; sleep 60", "did not end"),
        ("yes", "too long"),
        (f"echo {VALUE}; sleep 61 & exec sleep 62", "did not end"),
    ],
)
def test_a_command_that_fails_hangs_or_floods_is_ended_and_shows_nothing(script: str, why: str, capfd: Any) -> None:
    with pytest.raises(SourceFailed, match=why) as failed:
        read(a_command("sh", "-c", script, seconds=0.4))

    assert VALUE not in str(failed.value)
    assert VALUE not in "".join(capfd.readouterr())


def test_a_command_that_the_box_may_write_does_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "bin" / "get-token"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {ran}\necho {VALUE}\n")
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}"}

    with pytest.raises(SourceFailed, match="the box may write"):
        read(CommandSource(("get-token",), writable=(str(tmp_path),), environment=environment))
    assert not ran.exists()
    assert read(CommandSource(("get-token",), environment=environment)).value == VALUE.encode()
    assert ran.exists()


def test_a_keyring_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)

    with pytest.raises(NotInstalled, match="keyring"):
        read(KeyringSource("service", "name"))


def test_a_keyring_is_asked_for_service_and_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "keyring"
    package.mkdir()
    (package / "__init__.py").write_text(
        "def get_password(service, name):\n    return f'{service}|{name}' if name != 'none' else None\n"
    )
    (package / "errors.py").write_text("class KeyringError(Exception): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("keyring", "keyring.errors"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    assert read(KeyringSource("a/b", "me")).value == b"a/b|me"
    with pytest.raises(SourceFailed, match="has no"):
        read(KeyringSource("a", "none"))


# --- what is declared -------------------------------------------------------------------------------------------------


def parse(text: str, **changes: Any) -> Any:
    return parse_secret(text, ENVIRONMENT, **changes)


def test_a_whole_declaration() -> None:
    found = parse("api=env:API_KEY@api.example.com,*.example.net:8443;header=X-Api-Key;template=k {}")

    assert found.grant.hosts == ("api.example.com", "*.example.net:8443")
    assert (found.grant.style, found.grant.header, found.grant.template) == (SecretStyle.INJECT, "X-Api-Key", "k {}")
    assert found.grant.variable == ""
    assert found.source == EnvironmentSource("API_KEY", ENVIRONMENT)


def test_a_name_that_can_be_a_variable_is_one_inside() -> None:
    found = parse("DEPLOY=file:/etc/deploy@api.example.com;places=header,body").grant

    assert (found.style, found.variable) == (SecretStyle.PLACEHOLDER, "DEPLOY")
    assert found.places == (SecretPlace.HEADER, SecretPlace.BODY)
    assert parse("deploy=env:API_KEY@a.example").grant.variable == ""
    assert parse("deploy=env:API_KEY@a.example;variable=KEY").grant.variable == "KEY"


def test_a_preset_needs_neither_source_nor_host() -> None:
    found = parse("GH_TOKEN")

    assert "api.github.com" in found.grant.hosts
    assert found.source == EnvironmentSource("GH_TOKEN", ENVIRONMENT)
    assert parse("GH_TOKEN=command:gh auth token").source.argv == ("gh", "auth", "token")
    assert parse("GH_TOKEN=env:GH_TOKEN@ghe.example.com").grant.hosts == ("ghe.example.com",)
    assert parse("AWS_ACCESS_KEY_ID").source.name == "AWS_*"
    assert parse("AWS_ACCESS_KEY_ID").grant.signer == "aws-sigv4"


def test_a_command_may_hold_any_character() -> None:
    found = parse("X=command:vault read 'a@b;c' -x@y.example;ttl=2m")

    assert found.source.argv == ("vault", "read", "a@b;c", "-x")
    assert found.source.ttl_seconds == 120
    assert found.grant.hosts == ("y.example",)


BAD = {
    "no name": "=env:A@a.example",
    "a name with a space": "a b=env:A@a.example",
    "no source": "NAME",
    "no host": "NAME=env:A",
    "every host": "NAME=env:A@*",
    "no host name": "NAME=env:A@bad host",
    "a URL": "NAME=env:A@https://a.example",
    "an option": "NAME=env:A@a.example;colour=red",
    "a place": "NAME=env:A@a.example;places=cookie jar",
    "a style": "NAME=env:A@a.example;style=loud",
    "a signer": "NAME=env:A@a.example;signer=pen",
    "a header": "NAME=env:A@a.example;header=X: y",
    "a template": "NAME=env:A@a.example;header=X;template=none",
    "a variable": "NAME=env:A@a.example;variable=1X",
    "a time": "NAME=env:A@a.example;ttl=soon",
    "descriptor 1": "NAME=fd:1@a.example",
    "descriptor x": "NAME=fd:x@a.example",
    "a quote": "NAME=command:echo 'a@a.example",
    "a keyring": "NAME=keyring:service@a.example",
    "an empty kind": "NAME=env:@a.example",
}


@pytest.mark.parametrize("case", BAD)
def test_what_makes_no_sense_is_refused(case: str) -> None:
    with pytest.raises((InvalidArgument, InvalidConfig)):
        parse(BAD[case])


@pytest.mark.parametrize("text", [f"GH_TOKEN={VALUE}", f"X={VALUE}@a.example", f"X={VALUE}:y@a.example"])
def test_a_value_that_was_typed_instead_of_a_source_is_not_shown(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse(text)

    assert VALUE not in str(refused.value)


def test_a_file_in_the_workspace_names_no_source() -> None:
    for text in ("X=command:id@evil.example", "X=env:GH_TOKEN@evil.example"):
        with pytest.raises(InvalidArgument, match="workspace"):
            parse(text, from_workspace=True)
        assert parse(text)


def test_presets_are_whole() -> None:
    shapes = {shape.prefix for shape in SHAPES}
    assert len({each.variable for each in PRESETS}) == len(PRESETS)
    for each in PRESETS:
        assert each.hosts
        assert each.why
        assert each.shape in shapes
        for host in each.hosts:
            assert not HostRule.parse(host, Mark("preset", 1)).matches_everything


# --- what the box and the proxy get -----------------------------------------------------------------------------------


def test_grants_hold_placeholders_of_the_values_shape_and_no_value() -> None:
    sources = SecretSources((parse("GH_TOKEN"), parse("key=env:API_KEY@a.example;header=X-Key")))

    token, key = asyncio.run(sources.grants())

    assert token.placeholder.startswith("ghp_")
    assert len(token.placeholder) == len(VALUE)
    assert token.placeholder != VALUE
    assert key.placeholder == ""
    assert VALUE not in repr((sources, token, parse("GH_TOKEN")))
    assert asyncio.run(sources.value(token)).value == VALUE.encode()
    sources.close()


def test_a_source_that_fails_is_said_when_the_box_is_opened() -> None:
    with pytest.raises(SourceFailed, match="NOTHING"):
        asyncio.run(SecretSources((parse("X=env:NOTHING@a.example"),)).grants())
    with pytest.raises(SourceFailed, match="shorter"):
        short = parse_secret("X=env:S@a.example", {"S": "short"})
        asyncio.run(SecretSources((short,)).grants())


def test_a_token_of_a_signer_is_what_the_proxy_gets() -> None:
    async def post(request: TokenRequest) -> TokenResponse:
        return TokenResponse(200, b'{"access_token": "short-lived", "expires_in": 60}')

    held = '{"token_url": "https://auth.example/t", "client_id": "me", "client_secret": "long-lived"}'
    declared = parse_secret("X=env:OAUTH@api.example.com;signer=oauth-client", {"OAUTH": held})
    sources = SecretSources((declared,), Mint({"oauth-client": ClientCredentials()}, post))

    async def run() -> tuple[Any, SecretValue]:
        (grant,) = await sources.grants()
        return grant, await sources.value(grant)

    grant, value = asyncio.run(run())
    assert value.value == b"short-lived"
    assert value.good_until > time.monotonic()
    assert len(grant.placeholder) == 64


def test_two_secrets_with_one_name_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        SecretSources((parse("GH_TOKEN"), parse("GH_TOKEN=env:API_KEY")))


def test_the_modes_of_the_test_are_what_it_says(tmp_path: Path) -> None:
    assert stat.S_IMODE(a_file(tmp_path, mode=0o644).stat().st_mode) == 0o644
