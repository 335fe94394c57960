"""The variables of requirement D8."""

import pytest

from ringfence.errors import InvalidConfig
from ringfence.policy.environment import ALIASES
from ringfence.policy.settings import ADAPTERS, ENGINES, ProcessSandboxSettings, read_settings

pytestmark = pytest.mark.req("D8")


def test_nothing_set_means_a_wall_is_required_and_chosen() -> None:
    assert read_settings({}) == ProcessSandboxSettings(adapter=None, tool_engine=None)


@pytest.mark.parametrize("prefix", ["RINGFENCE", "OPENAGENTIC"])
def test_every_variable_is_read_under_both_names(prefix: str) -> None:
    settings = read_settings(
        {
            f"{prefix}_PROCESS_SANDBOX": "bwrap",
            f"{prefix}_PROCESS_SANDBOX_REQUIRED": "1",
            f"{prefix}_BWRAP_PATH": "/opt/bwrap",
            f"{prefix}_BWRAP_NETWORK": "deny",
            f"{prefix}_BWRAP_RO_BINDS": "/usr,/bin, /lib, /srv/data/,",
            f"{prefix}_TOOL_ENGINE": "native",
        }
    )

    assert settings == ProcessSandboxSettings(
        adapter="bwrap",
        bwrap_path="/opt/bwrap",
        ro_binds=("/srv/data",),  # the others are shown anyway
        tool_engine="native",
    )


def test_our_own_names_beat_the_aliases() -> None:
    environ = {"RINGFENCE_PROCESS_SANDBOX": "landlock", "OPENAGENTIC_PROCESS_SANDBOX": "bwrap"}

    assert read_settings(environ).adapter == "landlock"


@pytest.mark.parametrize("value", ["allow", "1", "true", "ON"])
def test_the_network_cannot_be_switched_on(value: str) -> None:
    settings = read_settings({"RINGFENCE_BWRAP_NETWORK": value})

    assert settings.bwrap_network is False
    assert "stays off" in settings.warnings[0]


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("RINGFENCE_PROCESS_SANDBOX", "docker", ", ".join(ADAPTERS)),
        ("OPENAGENTIC_PROCESS_SANDBOX", "BWRAP", ", ".join(ADAPTERS)),
        ("RINGFENCE_TOOL_ENGINE", "fast", ", ".join(ENGINES)),
        ("RINGFENCE_PROCESS_SANDBOX_REQUIRED", "maybe", "true, 1, yes"),
        ("RINGFENCE_BWRAP_NETWORK", "some", "allow, deny"),
        ("RINGFENCE_BWRAP_PATH", "./bwrap", "absolute path"),
        ("RINGFENCE_BWRAP_RO_BINDS", "/usr,lib", "absolute paths"),
        ("RINGFENCE_BWRAP_RO_BINDS", "/usr/../root", "absolute paths"),
    ],
)
def test_a_bad_value_is_an_error_that_names_the_variable_and_what_is_valid(name: str, value: str, valid: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_settings({name: value})

    assert name in caught.value.message
    assert valid in caught.value.hint


@pytest.mark.req("D8")
@pytest.mark.parametrize("name", ["RINGFENCE_PROCESS_SANDBOX_REQUIRED", "OPENAGENTIC_PROCESS_SANDBOX_REQUIRED"])
def test_a_wall_cannot_be_declared_not_required(name: str) -> None:
    (warning,) = read_settings({name: "no"}).warnings

    assert warning.startswith(f"{name}=no has no effect: nothing runs without a wall")
    assert read_settings({name: "yes"}).warnings == ()


def test_a_bare_program_name_is_left_for_path() -> None:
    assert read_settings({"OPENAGENTIC_BWRAP_PATH": "bwrap"}).bwrap_path == "bwrap"


def test_no_alias_stands_for_two_variables() -> None:
    assert len(set(ALIASES.values())) == len(ALIASES)
