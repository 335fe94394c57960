"""What RINGFENCE_URL means is said for every command, once."""

import pytest

from ringfence.cli.elsewhere import BY_SERVER, OF_THIS_MACHINE, REFUSED, refuse_of_this_machine
from ringfence.cli.names import COMMANDS
from ringfence.errors import InvalidArgument

NAMED = {"RINGFENCE_URL": "unix:///run/ringfence.sock"}


def test_every_command_is_done_by_the_server_or_of_this_machine_or_refused() -> None:
    assert sorted([*BY_SERVER, *OF_THIS_MACHINE, *REFUSED]) == sorted(COMMANDS)


@pytest.mark.parametrize("name", REFUSED)
def test_a_command_that_does_not_speak_to_a_server_is_refused_where_one_is_named(name: str) -> None:
    with pytest.raises(InvalidArgument, match="names a server"):
        refuse_of_this_machine([name], NAMED)
    refuse_of_this_machine([name], {})
    refuse_of_this_machine([name, "--help"], NAMED)


@pytest.mark.parametrize("name", sorted(BY_SERVER | OF_THIS_MACHINE))
def test_the_others_are_not(name: str) -> None:
    refuse_of_this_machine([name], NAMED)
