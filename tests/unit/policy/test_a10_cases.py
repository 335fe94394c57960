"""Those of the nineteen cases of requirement A10 that are about configuration and profiles; the others run commands."""

import json
from pathlib import Path

import pytest

from ringfence.confinement.macos.seatbelt import profile
from ringfence.errors import InvalidConfig
from ringfence.policy.config import SandboxConfig, config_location, parse_config
from ringfence.policy.defaults import BLACKLIST
from ringfence.policy.expanding import expand
from ringfence.policy.globs import PathRules
from ringfence.values.grant import Grant
from tests.support.sbpl import decide

pytestmark = pytest.mark.req("A10")

HOME = "/home/user"
EXAMPLE = """\
{
  "enabled": true,
  "filesystem": {
    "whitelist": [
      "/home/user/projects",
      "/var/data"
    ],
    "blacklist": [
      "~/.kube",
      "~/.docker"
    ]
  }
}
"""


def rules(config: SandboxConfig) -> PathRules:
    return PathRules(expand(row, {}, HOME, glob=True) for row in config.blacklist)


def test_a10_case_08_the_macos_profile_allows_the_whitelist_and_denies_the_blacklist_and_the_network() -> None:
    text = profile(
        Grant(
            workspace=Path("/Users/u/project"),
            writable=(Path("/Users/u/data"),),
            denied=tuple(expand(row, {}, "/Users/u") for row in BLACKLIST),
        )
    )

    assert decide(text, "file-write-data", "/Users/u/project/a.txt") == "allow"
    assert decide(text, "file-write-data", "/Users/u/data/a.txt") == "allow"
    assert decide(text, "file-read-data", "/usr/bin/git") == "allow"
    assert decide(text, "file-write-data", "/usr/bin/git") == "deny"
    assert decide(text, "file-read-data", "/Users/u/.ssh/id_ed25519") == "deny"
    assert decide(text, "file-read-data", "/Users/u/project/.env") == "deny"
    assert decide(text, "file-read-data", "/Users/u/elsewhere") == "deny"
    assert decide(text, "network-outbound", "") == "deny"


def test_a10_case_11_defaults_hold_the_sensitive_directories() -> None:
    defaults = rules(SandboxConfig())

    for path in (
        "/home/user/.ssh/id_rsa",
        "/home/user/.aws/credentials",
        "/home/user/.gnupg",
        "/home/user/.config/gcloud/credentials.db",
        "/home/user/.azure",
        "/etc/passwd",
        "/etc/shadow",
        "/home/user/projects/app/.env",
        "/home/user/projects/app/.envrc",
        "/home/user/projects/app/.env.local",
        "/srv/credentials.json",
        "/srv/secrets.json",
    ):
        assert defaults.matches(path), path


def test_a10_case_12_the_users_file_is_merged_and_the_built_in_blacklist_stays() -> None:
    config = parse_config(EXAMPLE, "sandbox.json")

    assert config.enabled
    assert config.whitelist == ("/home/user/projects", "/var/data")
    assert config.blacklist == (*BLACKLIST, "~/.kube", "~/.docker")
    assert config.allow_read_outside is False
    assert rules(config).matches("/home/user/.kube/config") == "/home/user/.kube"
    assert config.warnings == ()


def test_a10_case_13_without_a_file_there_are_two_places_to_look_and_then_the_defaults() -> None:
    # No candidate exists, so nothing is parsed: what is left is what a configuration is when nobody says anything.
    assert len(config_location({}, HOME)) == 2
    config = SandboxConfig()

    assert (config.enabled, config.whitelist, config.blacklist) == (True, (), BLACKLIST)
    assert (config.allow_read_outside, config.source, config.warnings) == (False, "defaults", ())


@pytest.mark.parametrize("broken", [EXAMPLE[:-5], EXAMPLE.replace("true", "yes"), "", "[]", '{"enabled": "false"}'])
def test_a10_case_14_a_broken_file_falls_back_to_the_defaults_with_a_warning(broken: str) -> None:
    config = parse_config(broken, "sandbox.json")

    assert (config.enabled, config.whitelist, config.blacklist) == (True, (), BLACKLIST)
    assert len(config.warnings) == 1
    assert config.warnings[0].startswith("sandbox.json:")


def test_a10_case_17_variables_in_paths_expand() -> None:
    config = parse_config(json.dumps({"filesystem": {"whitelist": ["$DATA/in", "${DATA}/out"]}}), "sandbox.json")

    expanded = tuple(expand(path, {"DATA": "/var/data"}, HOME) for path in config.whitelist)

    assert expanded == ("/var/data/in", "/var/data/out")


def test_a10_case_17_a_variable_that_is_not_set_is_an_error_and_not_an_empty_text() -> None:
    with pytest.raises(InvalidConfig, match="DATA is not set"):
        expand("$DATA/in", {}, HOME)


def test_a10_case_18_a_tilde_expands_to_the_home_directory() -> None:
    assert expand("~/.ssh", {}, HOME) == "/home/user/.ssh"
    assert expand("~", {}, HOME) == "/home/user"
