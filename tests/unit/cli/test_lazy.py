"""The table of commands says what the commands say of themselves, though it is read without loading them."""

import pytest

from ringfence.cli.lazy import COMMANDS, load


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_a_command_what_its_own_help_says_first(name: str) -> None:
    assert load(name).help.split("\n\n")[0].replace("\n", " ").strip() == COMMANDS[name]
