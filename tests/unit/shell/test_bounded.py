"""Time: no text makes the analysis take long, whatever it repeats."""

import time

import pytest

from ringfence.shell import CheckContext, analyse, validate

LENGTH = 60_000
LANGUAGES = ["vim -c", "psql -c", "sqlite3 x", "gdb -ex", "python3 -c", "perl -e", "awk", "sed", "latex", "rpm --eval"]
LANGUAGES += ["ruby -e", "lua -e", "groovy -e", "pwsh -c"]
PIECES = ["\n", "\n ", " ", "a", "(", '"', "open(a,", "system(", "!", "|", ";", "/a", "%(", "`", "exec "]
PIECES += ["q(", "qw/", "%w[", "[[", "[=[", '"a" ', "COMMAND ", "file(REMOVE ", "Remove-Item "]
PIECES += [
    "chr(1)+",
    '["a",',
    'path.join("a",',
    'b64decode("',
    'Path("a")/"b"/',
    "\\x41",
    "bytes([1,",
    '"a".join(["b",',
]
PIECES += ['"a"[::-1]', "delete-file ", 'Process.Start("a",']
WRAPPERS = [
    "setarch x ",
    "env -x ",
    "foo sudo ",
    "sh -c ",
    "eval ",
    "xargs -q ",
    "ssh -z h ",
    "parallel ",
    "timeout -z 1 ",
]


def seconds(text: str, stdin: str | None = None) -> float:
    begun = time.process_time()
    validate(analyse(text, stdin=stdin), CheckContext())
    return time.process_time() - begun


@pytest.mark.req("C3")
@pytest.mark.parametrize("language", LANGUAGES)
def test_code_that_repeats_itself_is_read_quickly(language: str) -> None:
    for piece in PIECES:
        assert seconds(f"{language} '{piece * (LENGTH // len(piece))}'") < 5, piece


@pytest.mark.parametrize("program", ["ed", "dc", "m4", "mail", "tclsh", "sqlite3", "cmake -P -", "osascript -"])
def test_standard_input_that_repeats_itself_is_read_quickly(program: str) -> None:
    for piece in PIECES:
        assert seconds(program, piece * (LENGTH // len(piece))) < 5, piece


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_within_wrappers_do_not_multiply(wrapper: str) -> None:
    for count in (25, 60, 1000):
        assert seconds(wrapper * count + "ls") < 5, count


@pytest.mark.parametrize(
    "piece",
    ["${HOME%%[!/]*}", "${PATH:0:1}", '${HOME%"${HOME#?}"}', "${PWD%*a*b*c*d*e*f*g*h*}", "${SHELL//*a*b*/$HOME}"],
)
def test_parts_of_variables_are_taken_quickly(piece: str) -> None:
    assert seconds("cat " + piece * (LENGTH // len(piece))) < 5
    assert seconds("cat " + f"{piece} " * (LENGTH // len(piece))) < 5


@pytest.mark.parametrize(
    "words",
    ["rsync -n --delete ", "git -c a=b ", "git --config-env=core.pager=X ", "git clean -n -e ", "rclone sync a "],
)
def test_options_that_repeat_themselves_are_read_quickly(words: str) -> None:
    program, _, rest = words.partition(" ")
    assert seconds(f"{program} " + rest * (LENGTH // len(rest))) < 5


def test_settings_in_one_word_are_read_quickly() -> None:
    for piece in ("a=/b ", "a=", "a=/", "a ", "a=b c"):
        assert seconds(f"foo 'x=1 {piece * (LENGTH // len(piece))}'") < 5, piece


@pytest.mark.req("C3")
@pytest.mark.parametrize("name", ["Makefile", "package.json", "conftest.py", ".git/config", "CMakeLists.txt"])
def test_a_file_that_a_tool_runs_unasked_is_read_quickly(name: str) -> None:
    tool = {"Makefile": "make", "package.json": "npm test", "conftest.py": "pytest", ".git/config": "git log"}
    for piece in ("a: b c ", "x = !a ", "- run a b", "  a b c", "a=b c"):
        text = (piece + "\n") * 500
        assert seconds(f"cat > {name} <<'E'\n{text}E\n{tool.get(name, 'cmake .')}") < 5, piece


@pytest.mark.req("C3")
@pytest.mark.parametrize("tool", ["base64 -d", "tr a-z b-za", "rev", "xxd -r -p", "cut -c2-", "tail -n 3"])
def test_a_long_text_in_disguise_is_taken_out_quickly(tool: str) -> None:
    assert seconds(f"cat $(echo {'QUFB' * (LENGTH // 4)} | {tool})") < 5
