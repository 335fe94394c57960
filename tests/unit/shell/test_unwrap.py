"""Commands inside commands."""

import pytest

from ringfence.shell import CheckContext, analyse, answer, validate
from ringfence.shell.catalog import WRAPPERS
from ringfence.values.facts import CheckAnswer, Via


def inner(text: str) -> list[str | None]:
    return [word.text for word in analyse(text).programs[-1].argv]


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "wrapped",
    [
        "env A=1 -u B {}",
        "env -i {}",
        "sudo -u root -E {}",
        "doas -u x {}",
        "nohup {}",
        "timeout -k 1 5 {}",
        "nice -n 5 {}",
        "ionice -c 3 {}",
        "stdbuf -oL {}",
        "setsid -w {}",
        "command {}",
        "exec -a n {}",
        "time -p {}",
        "flock -n f {}",
        "taskset -c 0 {}",
        "chrt -r 5 {}",
        "strace -f -e trace=file {}",
        "busybox {}",
        "watch -n 1 {}",
        "eval {}",
        "ssh -p 22 u@h {}",
        "docker run --rm -e A=1 img {}",
        "kubectl exec -it p -- {}",
        "chroot / {}",
        "unshare -r {}",
        "nsenter -t 1 -m {}",
        "flatpak-spawn --host {}",
        "uv run {}",
        "find . -maxdepth 0 -exec {} ;",
        "xargs {} < /dev/null",
        "sh -c '{}'",
        "bash -lc '{}'",
        "su -c '{}'",
        "script -qc '{}'",
        "env -S '{}'",
        "git bisect run {}",
        "ld-linux-x86-64.so.2 {}",
        "bash <<< '{}'",
        "echo '{}' | sh",
        "sh <<'E'\n{}\nE",
        "$( {} )",
        "cat <( {} )",
        "f() {{ {}; }}; f",
        "trap '{}' EXIT",
    ],
)
def test_the_inner_command_is_found(wrapped: str) -> None:
    programs = analyse(wrapped.format("prog --flag").replace(" ;", " \\;")).programs

    assert any([word.text for word in program.argv][:2] == ["prog", "--flag"] for program in programs), programs


def test_wrappers_are_told_from_the_outside_in() -> None:
    program = analyse("sudo env A=1 timeout 5 ls").programs[-1]

    assert program.wrappers == ("sudo", "env", "timeout")
    assert program.name == "ls"


@pytest.mark.parametrize(
    ("text", "via"),
    [
        ("ls", (Via.DIRECT,)),
        ("sudo ls", (Via.WRAPPER,)),
        ("sh -c ls", (Via.SHELL,)),
        ("echo $(ls)", (Via.SUBSTITUTION,)),
        ("f() { ls; }; f", (Via.FUNCTION,)),
        ("ssh h ls", (Via.REMOTE,)),
        ("sudo sh -c ls", (Via.WRAPPER, Via.SHELL)),
    ],
)
def test_how_a_program_comes_to_run_is_told(text: str, via: tuple[Via, ...]) -> None:
    assert next(program.via for program in analyse(text).programs if program.name == "ls") == via


def test_an_option_that_no_row_knows_is_read_both_ways() -> None:
    names = [program.name for program in analyse("nice --unheard-of 5 rm -rf /").programs]

    assert "rm" in names


@pytest.mark.parametrize("name", sorted(WRAPPERS))
def test_every_row_of_the_catalogue_reaches_its_inner_command(name: str) -> None:
    row = WRAPPERS[name]
    words = [name, *sorted(row.words)[:1], *["1"] * row.operands, "rm", "-rf", "/"]

    assert answer(validate(analyse(" ".join(words)), CheckContext())) is CheckAnswer.BLOCK


@pytest.mark.parametrize("text", ["command -v rm", "man rm", "echo sudo rm", "git commit -m 'sh -c rm'", "which sudo"])
def test_words_that_only_name_a_program_run_none(text: str) -> None:
    assert len(analyse(text).programs) == 1
