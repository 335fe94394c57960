"""What the person's own clients are configured for is read from their files, and never from the workspace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringfence.manager import network_presets
from ringfence.manager.network_presets import own_addresses, read_clients
from ringfence.policy.network_clients import Clients


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("home/.config/pip", "home/.config/uv", "home/.config/go", "home/.cargo", "home/.m2", "work/.git"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "root/etc/apt/sources.list.d").mkdir(parents=True)
    return tmp_path


def read(place: Path, *, remotes: bool = False, **environ: str) -> Clients:
    return read_clients(environ, str(place / "home"), str(place / "work"), root=str(place / "root"), remotes=remotes)


def found(clients: Clients, client: str) -> list[tuple[str, str]]:
    return [(source.kind.value, source.url) for source in clients.of(client)]


def test_nothing_is_configured_where_nothing_is(place: Path) -> None:
    assert read(place).sources == ()


def test_pip_reads_the_systems_file_the_persons_and_variables(place: Path) -> None:
    (place / "root/etc/pip.conf").write_text("[global]\nindex-url = https://system.corp/simple\n")
    (place / "home/.config/pip/pip.conf").write_text(
        "[global]\nextra-index-url =\n    https://one.corp/simple\n    file:///srv/two\n"
        "[install]\ntrusted_host = one.corp\n"
    )

    clients = read(place)
    assert found(clients, "pip") == [
        ("index", "https://system.corp/simple"),
        ("extra", "https://one.corp/simple"),
        ("extra", "file:///srv/two"),
    ]
    assert clients.trusted == ("one.corp",)
    beaten = read(place, PIP_INDEX_URL="https://u:p@mine.corp/simple", PIP_CONFIG_FILE=os.devnull)
    assert found(beaten, "pip") == [("index", "https://mine.corp/simple")]
    assert beaten.sources[0].has_password


def test_uv_reads_its_own(place: Path) -> None:
    (place / "home/.config/uv/uv.toml").write_text(
        '[[index]]\nname = "corp"\nurl = "https://uv.corp/simple"\ndefault = true\n[pip]\nfind-links = ["/srv/w"]\n'
    )

    assert found(read(place), "uv") == [("links", "/srv/w"), ("index", "https://uv.corp/simple")]
    assert ("extra", "https://x.corp/s") in found(read(place, UV_INDEX="corp=https://x.corp/s"), "uv")


def test_npm_reads_its_registry_and_those_of_scopes(place: Path) -> None:
    (place / "home/.npmrc").write_text(
        "registry=https://npm.corp/\n@team:registry = https://${HOST}/team/\n//npm.corp/:_authToken=hunter2\n"
    )

    clients = read(place, HOST="scoped.corp")
    assert [(source.scope, source.url) for source in clients.of("npm")] == [
        ("", "https://npm.corp/"),
        ("@team", "https://scoped.corp/team/"),
    ]
    assert "hunter2" not in repr(clients)
    (other,) = read(place, NPM_CONFIG_REGISTRY="http://10.0.0.5:4873/", NPM_CONFIG_USERCONFIG="/dev/null").of("npm")
    assert (other.url, other.port) == ("http://10.0.0.5:4873/", 4873)


def test_apt_reads_both_kinds_of_sources(place: Path) -> None:
    apt = place / "root/etc/apt"
    (apt / "sources.list").write_text("# deb http://no.corp x\ndeb [arch=amd64] http://deb.corp/debian stable main\n")
    (apt / "sources.list.d/a.sources").write_text(
        "Types: deb\nURIs: https://one.corp/d https://two.corp/d\nSuites: x\n\n"
        "Types: deb\nURIs: http://off.corp\nEnabled: no\n"
    )
    (apt / "sources.list.d/b.list").write_text("deb cdrom:[x]/ stable main\ndeb file:/srv/apt ./\n")

    assert [url for _, url in found(read(place), "apt")] == [
        "http://deb.corp/debian",
        "file:///srv/apt",
        "https://one.corp/d",
        "https://two.corp/d",
    ]


def test_cargo_go_and_maven(place: Path) -> None:
    (place / "home/.cargo/config.toml").write_text('[source.corp]\nregistry = "sparse+https://cargo.corp/index/"\n')
    (place / "home/.m2/settings.xml").write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors><mirror><url>https://mvn.corp/r</url></mirror>'
        "</mirrors></settings>"
    )
    clients = read(place, GOPROXY="https://go.corp,direct")

    assert [source.url for source in clients.of("cargo", "maven", "go")] == [
        "https://cargo.corp/index/",
        "https://go.corp",
        "https://mvn.corp/r",
    ]


def test_the_remotes_of_the_workspace_are_read_where_they_are_asked_for(place: Path) -> None:
    (place / "work/.git/config").write_text(
        '[core]\n\tbare = false\n[remote "origin"]\n\turl = git@git.corp:team/app.git\n[remote "up"]\n'
        "\turl = https://token@github.com/o/r\n"
    )

    assert read(place).of("git") == ()
    assert [source.url for source in read(place, remotes=True).of("git")] == [
        "ssh://git.corp/team/app.git",
        "https://github.com/o/r",
    ]


def test_what_an_agent_could_have_written_does_not_count(place: Path) -> None:
    (place / "work/pip.conf").write_text("[global]\nindex-url = https://evil.example/simple\n")
    (place / "work/.npmrc").write_text("registry=https://evil.example/\n")
    (place / "outside.conf").write_text("[global]\nindex-url = https://good.example/simple\n")
    (place / "link.conf").symlink_to(place / "work/pip.conf")

    inside = read(place, PIP_CONFIG_FILE=str(place / "work/pip.conf"))
    assert inside.sources == () and "an agent could have written it" in inside.notes[0]
    assert read(place, PIP_CONFIG_FILE=str(place / "link.conf")).sources == ()
    assert len(read(place, PIP_CONFIG_FILE=str(place / "outside.conf")).sources) == 1, "the guard is the place"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("home/.config/pip/pip.conf", "no ini at all"),
        ("home/.config/uv/uv.toml", "= ="),
        ("home/.m2/settings.xml", "<settings>"),
        ("home/.npmrc", "registry=http://[::1\n"),
    ],
)
def test_a_file_that_cannot_be_understood_is_said_and_left_out(place: Path, name: str, text: str) -> None:
    (place / name).write_text(text)

    clients = read(place)
    assert clients.sources == () and len(clients.notes) == 1


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(place: Path) -> None:
    os.mkfifo(place / "home/.npmrc")

    assert read(place).sources == ()


def test_only_private_addresses_are_of_interest_and_never_loopback_or_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "mirror.corp": ("10.1.2.3", "8.8.8.8"),
        "public.example": ("8.8.8.8",),
        "evil.example": ("127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0"),
        "six.corp": ("fd12::1",),
    }
    monkeypatch.setattr(network_presets, "_looked_up", lambda host, minute: answers[host])

    assert own_addresses((*answers, "*.corp")) == {"mirror.corp": ("10.1.2.3/32",), "six.corp": ("fd12::1/128",)}
