"""The sandbox file: what it may say, what it cannot take away, and what happens when it is wrong."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import InvalidConfig
from ringfence.policy.config import (
    KEYS,
    SandboxConfig,
    config_location,
    defaults_because,
    parse_config,
    with_environment,
)
from ringfence.policy.defaults import BLACKLIST
from ringfence.policy.expanding import expand
from ringfence.values.limits import Limits

DEFAULTS = SandboxConfig()


def parse(document: Any) -> SandboxConfig:
    return parse_config(json.dumps(document), "sandbox.json")


def protects_as_the_defaults_do(config: SandboxConfig) -> bool:
    return (config.enabled, config.whitelist, config.blacklist, config.allow_read_outside, config.limits) == (
        True,
        (),
        BLACKLIST,
        False,
        Limits(),
    )


@pytest.mark.req("A1")
def test_camel_case_and_snake_case_say_the_same() -> None:
    camel = parse({"filesystem": {"allowReadOutside": True}, "limits": {"openFiles": 99, "fileSize": "1MB"}})
    snake = parse({"filesystem": {"allow_read_outside": True}, "limits": {"open_files": 99, "file_size": "1MB"}})

    assert camel == snake
    assert camel.allow_read_outside
    assert (camel.limits.open_files, camel.limits.file_bytes) == (99, 1024**2)


@pytest.mark.req("A2")
def test_an_empty_object_is_the_defaults() -> None:
    assert protects_as_the_defaults_do(parse({}))
    assert parse({}).warnings == ()


@pytest.mark.req("A2", "A3")
@pytest.mark.parametrize("own", [[], ["~/.kube"], ["/etc/shadow", "~/.ssh"], list(reversed(BLACKLIST))])
def test_the_built_in_blacklist_stays_whole_and_first_whatever_the_file_says(own: list[str]) -> None:
    config = parse({"filesystem": {"blacklist": own}})

    assert config.blacklist[: len(BLACKLIST)] == BLACKLIST
    assert set(own) <= set(config.blacklist)
    assert len(set(config.blacklist)) == len(config.blacklist)


@pytest.mark.req("A3")
def test_not_even_code_can_make_a_configuration_without_the_built_in_blacklist() -> None:
    assert SandboxConfig(blacklist=("/mine",)).blacklist == (*BLACKLIST, "/mine")


@pytest.mark.req("A2", "A5")
@pytest.mark.parametrize("key", ["allowNetwork", "allow_network"])
def test_asking_for_the_network_gets_a_warning_and_no_network(key: str) -> None:
    config = parse_config(f'{{\n  "network": {{"{key}": true}}\n}}', "sandbox.json")

    (warning,) = config.warnings
    assert warning.startswith("sandbox.json:2:15: ")
    assert f"network.{key} has no effect: the network stays off" in warning
    assert not any("network" in name for name in SandboxConfig.__dataclass_fields__)


def test_leaving_the_network_off_is_no_reason_for_a_warning() -> None:
    assert parse({"network": {"allowNetwork": False}}).warnings == ()


def test_limits_are_read_with_their_units() -> None:
    limits = parse({"limits": {"wall": "2m", "cpu": 1.5, "memory": "512MB", "processes": 7, "tmp": 4096}}).limits

    assert limits == Limits(
        wall_seconds=120.0, cpu_seconds=1.5, memory_bytes=512 * 1024**2, processes=7, tmp_bytes=4096
    )


def test_every_limit_can_be_set() -> None:
    limits = parse({"limits": dict.fromkeys(KEYS["limits"], 1)}).limits

    assert {getattr(limits, name) for name in Limits.__dataclass_fields__} == {1}


BROKEN = {
    "nothing": ("", 1, 1),
    "comma": ('{\n  "enabled": true,\n}', 3, 1),
    "comment": ('{\n  // no\n  "enabled": true}', 2, 3),
    "cut off": ('{"filesystem": {', 1, 17),
    "not an object": ("[]", 1, 1),
    "null": ("null", 1, 1),
    "constant": ('{\n"limits": {"memory": NaN}}', 2, 22),
    "endless number": ('{\n"limits": {"processes": ' + "9" * 5000 + "}}", 2, 25),
    "nested": ("[" * 100_000, 1, 1),
    "twice": ('{"enabled": false,\n "enabled": true}', 2, 2),
    "twice, below": ('{"filesystem": {"blacklist": ["/a"],\n"blacklist": []}}', 2, 1),
    "two spellings": ('{"filesystem": {"allowReadOutside": false,\n"allow_read_outside": true}}', 2, 1),
    "flag": ('{"enabled":\n "no"}', 1, 2),
    "section": ('{"filesystem": []}', 1, 2),
    "list": ('{"filesystem": {\n  "blacklist": "/a"}}', 2, 3),
    "item": ('{"filesystem": {"blacklist": ["/a",\n {"x": [1, "]"]},\n  7]}}', 2, 2),
    "limit": ('{"limits": {"memory": true}}', 1, 13),
    "count": ('{"limits": {"processes": "many"}}', 1, 13),
}


@pytest.mark.req("A2")
@pytest.mark.parametrize(("text", "line", "column"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_protects_as_the_defaults_do_and_says_where_it_is_broken(
    text: str, line: int, column: int
) -> None:
    config = parse_config(text, "sandbox.json")

    assert protects_as_the_defaults_do(config)
    (warning,) = config.warnings
    assert warning.startswith(f"sandbox.json:{line}:{column}: ")


@pytest.mark.req("A2")
def test_the_warning_about_a_broken_file_says_that_its_own_blacklist_is_not_in_force() -> None:
    (warning,) = parse_config('{"filesystem": {"blacklist": ["~/.kube"]}', "sandbox.json").warnings

    assert "its own blacklist and limits are not in force" in warning


@given(st.text(max_size=60) | st.recursive(st.none() | st.booleans() | st.text(), st.lists).map(json.dumps))
def test_no_text_gives_less_protection_than_the_defaults(text: str) -> None:
    try:
        config = parse_config(text, "sandbox.json")
    except InvalidConfig:
        return
    assert protects_as_the_defaults_do(config)


def test_a_file_that_cannot_be_read_at_all_has_a_warning_too() -> None:
    config = defaults_because("permission denied", "sandbox.json")

    assert protects_as_the_defaults_do(config)
    assert config.warnings[0].startswith("sandbox.json: permission denied; ")


def test_a_byte_order_mark_is_no_fault() -> None:
    assert parse_config('\ufeff{"enabled": false}', "sandbox.json").enabled is False


UNKNOWN = {
    "misspelled": ('{\n "enabld": true}', 2, "did you mean 'enabled'?"),
    "misspelled below": ('{"filesystem": {\n\n"blackList": []}}', 3, "did you mean 'blacklist'?"),
    "snake misspelled": ('{"filesystem": {"allow_read_outsid": true}}', 1, "did you mean 'allowReadOutside'?"),
    "misplaced": ('{"whitelist": []}', 1, "did you mean 'whitelist' inside 'filesystem'?"),
    "misplaced below": ('{"network": {"enabled": true}}', 1, "did you mean 'enabled' at the top?"),
    "limit": ('{"limits": {"memroy": 1}}', 1, "did you mean 'memory'?"),
    "nothing like it": ('{"zzz": 1}', 1, "valid here: enabled, filesystem, network, limits"),
}


@pytest.mark.req("A1")
@pytest.mark.parametrize(("text", "line", "hint"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_an_unknown_key_is_an_error_that_names_the_place_and_the_nearest_key(text: str, line: int, hint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_config(text, "sandbox.json")

    assert (caught.value.source, caught.value.line, caught.value.hint) == ("sandbox.json", line, hint)


NONSENSE = {
    "size": ('{"limits": {\n"memory": "9x"}}', 2),
    "zero": ('{"limits": {\n"processes": 0}}', 2),
    "negative": ('{"limits": {"wall": -1}}', 1),
    "too large": ('{"limits": {"memory": "' + "9" * 400 + '"}}', 1),
    "infinite": ('{"limits": {"wall": 1e999}}', 1),
    "huge count": ('{"limits": {"processes": ' + "9" * 30 + "}}", 1),
    "dots": ('{"filesystem": {"blacklist": ["/a",\n"/b/../c"]}}', 2),
    "everything": ('{"filesystem": {"blacklist": ["/"]}}', 1),
    "everything again": ('{"filesystem": {"blacklist": ["**"]}}', 1),
    "empty": ('{"filesystem": {"blacklist": [""]}}', 1),
    "nul": ('{"filesystem": {"blacklist": ["/a\\u0000"]}}', 1),
    "half a character": ('{"filesystem": {"blacklist": ["/a\\ud800"]}}', 1),
    "relative whitelist": ('{"filesystem": {"whitelist": ["data"]}}', 1),
    "nul in whitelist": ('{"filesystem": {"whitelist": ["/a\\u0000"]}}', 1),
}


@pytest.mark.parametrize(("text", "line"), NONSENSE.values(), ids=NONSENSE.keys())
def test_a_value_that_makes_no_sense_is_an_error_that_names_the_line(text: str, line: int) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_config(text, "sandbox.json")

    assert (caught.value.source, caught.value.line) == ("sandbox.json", line)


@pytest.mark.req("A1")
@pytest.mark.parametrize("name", ["RINGFENCE_SANDBOX_ENABLED", "SYNAPSE_SANDBOX_ENABLED"])
@pytest.mark.parametrize(
    ("value", "enabled"),
    [
        ("true", True),
        ("1", True),
        ("YES", True),
        ("on", True),
        ("false", False),
        ("0", False),
        ("No", False),
        ("off", False),
    ],
)
def test_the_environment_beats_the_file(name: str, value: str, enabled: bool) -> None:
    config = with_environment(SandboxConfig(enabled=not enabled), {name: value})

    assert config.enabled is enabled


@pytest.mark.req("A1")
@pytest.mark.parametrize("value", ["flase", "2", "disabled", "-"])
def test_a_mistyped_switch_is_an_error_and_never_switches_the_sandbox_off(value: str) -> None:
    with pytest.raises(InvalidConfig, match="RINGFENCE_SANDBOX_ENABLED"):
        with_environment(DEFAULTS, {"RINGFENCE_SANDBOX_ENABLED": value})


def test_an_empty_variable_is_one_that_is_not_set() -> None:
    assert with_environment(DEFAULTS, {"RINGFENCE_SANDBOX_ENABLED": " "}).enabled


def test_our_own_variable_beats_its_alias() -> None:
    environ = {"RINGFENCE_SANDBOX_ENABLED": "true", "SYNAPSE_SANDBOX_ENABLED": "false"}

    assert with_environment(DEFAULTS, environ).enabled


def test_a_sandbox_that_is_off_says_so_and_by_whom() -> None:
    by_file = with_environment(parse({"enabled": False}), {})
    by_variable = with_environment(DEFAULTS, {"SYNAPSE_SANDBOX_ENABLED": "0"})

    assert (by_file.enabled, by_file.switched_off_by) == (False, "sandbox.json")
    assert (by_variable.enabled, by_variable.switched_off_by) == (False, "SYNAPSE_SANDBOX_ENABLED")
    assert by_file.warnings == by_variable.warnings == (), "the run is refused; there is nothing to warn of"


@pytest.mark.req("A1")
def test_the_file_is_looked_for_at_our_place_and_then_at_the_alias() -> None:
    assert config_location({}, "/h") == ("/h/.ringfence/sandbox.json", "/h/.synapse/sandbox.json")


@pytest.mark.req("A1")
@pytest.mark.parametrize("name", ["RINGFENCE_SANDBOX_CONFIG", "SYNAPSE_SANDBOX_CONFIG"])
def test_a_named_file_is_the_only_place(name: str) -> None:
    assert config_location({name: "~/$X.json", "X": "mine"}, "/h") == ("/h/mine.json",)


@pytest.mark.req("A4")
@pytest.mark.parametrize(
    ("written", "expanded"),
    [
        ("~", "/home/u"),
        ("~/", "/home/u/"),
        ("/a~b/~", "/a~b/~"),
        ("$A/x", "/va/x"),
        ("${A}x", "/vax"),
        ("/p/$B$B", "/p/vbvb"),
        ("/$LOOP", "/$A"),
        ("/$$A", "/$A"),
        ("/cost$", "/cost$"),
        ("/1$2", "/1$2"),
        ("**/*.[pk]em", "**/*.[pk]em"),
        ("~/$B/*", "/home/u/vb/*"),
    ],
)
def test_paths_expand(written: str, expanded: str) -> None:
    assert expand(written, {"A": "/va", "B": "vb", "LOOP": "$A"}, "/home/u") == expanded


def test_the_root_as_a_home_directory_gives_no_doubled_slash() -> None:
    assert (expand("~/.ssh", {}, "/"), expand("~", {}, "/")) == ("/.ssh", "/")


@pytest.mark.req("A4")
@pytest.mark.parametrize(
    "written", ["$X/secret", "${X}/secret", "$EMPTY/secret", "${}", "${A", "${A-b}", "~root/.ssh", "~+"]
)
def test_what_cannot_be_expanded_is_an_error_and_never_becomes_another_path(written: str) -> None:
    with pytest.raises(InvalidConfig, match=r"secret|variable|supported"):
        expand(written, {"A": "/va", "EMPTY": ""}, "/home/u")


@pytest.mark.parametrize("home", ["", "home", "./x"])
def test_a_home_directory_that_is_not_absolute_is_an_error(home: str) -> None:
    with pytest.raises(InvalidConfig, match="HOME"):
        expand("~/.ssh", {}, home)


def test_stars_in_the_name_of_a_home_directory_stay_plain_in_a_row() -> None:
    assert expand("~/*.key", {}, "/home/a*b", glob=True) == "/home/a[*]b/*.key"
