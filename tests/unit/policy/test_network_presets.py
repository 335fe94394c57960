"""Presets: every row is sound, and starts from what the person's own clients are configured for."""

from __future__ import annotations

import pytest

from ringfence.errors import InvalidArgument
from ringfence.policy.document import Mark
from ringfence.policy.hosts import HostRule
from ringfence.policy.network_clients import Clients, ClientSource, SourceKind, make_source
from ringfence.policy.network_presets import BY_PRESET, PRESETS, READ, Preset
from ringfence.policy.network_reading import text_rules
from ringfence.policy.preset_expanding import Expansion, expand_preset, find_preset
from ringfence.values.network import GIT_PUSH, GIT_READ

NEVER = (
    "*.google.com",
    "*.googleapis.com",
    "*.blob.core.windows.net",
    "*.docker.com",
    "*.amazonaws.com",
    "upload.pypi.org",
)
"""Hosts that are everybody's storage, or where packages are published."""


def expanded(name: str, *sources: ClientSource, trusted: tuple[str, ...] = ()) -> Expansion:
    found = find_preset(name)
    assert found is not None
    return expand_preset(*found, Clients(sources, trusted))


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_every_row_parses_and_has_a_reason_and_a_risk(preset: Preset) -> None:
    assert len(preset.reason) > 10 and len(preset.risk) > 10
    assert preset.rules or preset.client == "git"
    text = f"{preset.name} {preset.argument}".strip()
    for rule in text_rules(text, Mark("", 1), "--allow", Clients()):
        assert rule.allow is not None and rule.allow.ports and rule.allow.written == f"--allow {text}"
        assert "{}" not in rule.allow.host + "".join(rule.allow.paths)
        assert not HostRule.parse(rule.allow.host, Mark("", 1)).matches_everything
        assert all(path.startswith("/") for path in rule.allow.paths)


def test_names_are_each_for_one_preset() -> None:
    names = [name for preset in PRESETS for name in (preset.name, *preset.aliases)]

    assert len(names) == len(set(names)) == len(BY_PRESET)
    assert not [name for name in names if "." in name], "a host has a dot, a preset has none"


def test_no_preset_opens_everybodys_storage_or_an_upload() -> None:
    hosts = {rule.host for preset in PRESETS for rule in preset.rules}

    assert not hosts & set(NEVER)
    written = {
        (rule.host, rule.methods) for preset in PRESETS for rule in preset.rules if set(rule.methods) - set(READ)
    }
    by_ssh = {(rule.host, rule.methods) for preset in PRESETS for rule in preset.rules if rule.ssh_user}
    assert all(methods == ("POST",) for _, methods in written - by_ssh)
    assert [rule.host for rule in BY_PRESET["pip"].rules if rule.methods != READ] == []


def test_packages_can_be_read_and_not_published() -> None:
    for name in ("pip", "cargo", "conda", "ruby", "containers", "huggingface", "apt"):
        assert {rule.methods for rule in BY_PRESET[name].rules} == {READ}, name


def test_a_push_is_to_one_repository() -> None:
    posts = [rule for rule in expanded("github-push Org/repo").rules if "POST" in rule.methods]
    paths = {path for rule in posts for path in rule.paths if "receive-pack" in path}

    assert paths == {"/Org/repo.git/git-receive-pack", "/Org/repo/git-receive-pack"}
    assert not any("receive-pack" in path for rule in expanded("github-read").rules for path in rule.paths)


@pytest.mark.parametrize("host", ["github", "gitlab", "bitbucket"])
def test_git_by_ssh_is_for_one_repository_and_pushes_where_its_name_says_so(host: str) -> None:
    (reading,) = expanded(f"{host}-ssh Org/repo").rules
    (pushing,) = expanded(f"{host}-ssh-push Org/repo").rules

    assert reading.paths == pushing.paths == ("/Org/repo",)
    assert (reading.methods, pushing.methods) == (GIT_READ, (*GIT_READ, *GIT_PUSH))


@pytest.mark.parametrize("text", ["github-push", "github-push ../x", "github-push a b", "github-push a/**", "pip 3"])
def test_an_argument_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        find_preset(text)


def test_pip_without_settings_is_the_public_index_and_its_files() -> None:
    found = expanded("uv")

    assert [rule.host for rule in found.rules] == ["pypi.org", "files.pythonhosted.org"]
    assert found.own_hosts == ("pypi.org", "files.pythonhosted.org") and found.variables == ()


def test_a_configured_index_stands_in_for_the_public_one() -> None:
    index = make_source("pip", SourceKind.INDEX, "http://user:hunter2@mirror.corp:8081/pypi/simple", "pip.conf")
    found = expanded("pip", index, trusted=("mirror.corp",))

    assert [(rule.host, rule.ports, rule.methods) for rule in found.rules] == [("mirror.corp", (8081,), READ)]
    assert dict(found.variables) == {
        "PIP_INDEX_URL": "http://mirror.corp:8081/pypi/simple",
        "PIP_TRUSTED_HOST": "mirror.corp",
    }
    assert "hunter2" not in repr(found) and "--secret" in found.notes[0]


def test_directories_become_readable_and_the_loopback_a_port() -> None:
    found = expanded(
        "pip",
        make_source("pip", SourceKind.EXTRA, "file:///srv/pypi/simple", "pip.conf"),
        make_source("pip", SourceKind.LINKS, "/srv/wheels", "pip.conf"),
        make_source("pip", SourceKind.EXTRA, "http://127.0.0.1:3141/simple", "pip.conf"),
        make_source("pip", SourceKind.EXTRA, "ftp://old.corp/simple", "pip.conf"),
    )

    assert found.readable == ("/srv/pypi", "/srv/wheels"), "an index links to files beside it"
    assert found.reach == (3141,)
    assert [rule.host for rule in found.rules] == ["pypi.org", "files.pythonhosted.org"]
    assert any("ftp://old.corp" in note for note in found.notes)


def test_an_index_at_the_root_does_not_open_the_root() -> None:
    found = expanded("pip", make_source("pip", SourceKind.EXTRA, "file:///srv/simple", "pip.conf"))

    assert found.readable == ("/srv/simple",)


def test_npm_has_registries_for_scopes() -> None:
    found = expanded("npm", make_source("npm", SourceKind.INDEX, "https://npm.corp/repo/", ".npmrc", scope="@corp"))

    assert {"registry.npmjs.org", "npm.corp"} <= {rule.host for rule in found.rules}
    assert found.variables == (("npm_config_@corp:registry", "https://npm.corp/repo/"),)


def test_git_follows_the_remotes_for_reading_only() -> None:
    found = expanded(
        "git",
        make_source("git", SourceKind.REMOTE, "ssh://git@git.corp/team/app.git", ".git/config"),
        make_source("git", SourceKind.REMOTE, "/srv/mirror", ".git/config"),
    )

    assert {rule.host for rule in found.rules} == {"git.corp"}
    assert not any("receive-pack" in path for rule in found.rules for path in rule.paths)
    assert found.own_hosts == (), "a remote may have been written by whoever made the repository: no private address"
    assert "no remote" in expanded("git").notes[0]
