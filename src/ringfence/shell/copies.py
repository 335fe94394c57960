"""Files that a text makes: what they hold, which program they are a copy of, what a link leads to."""

from typing import Final

from ringfence.shell.options import operands, option_values
from ringfence.shell.state import ShellOutput, State
from ringfence.values.facts import Origin, Word

_COPY_TAKES: Final = frozenset(("-m", "-o", "-g", "-S", "--mode", "--owner", "--group", "--suffix"))
_UNPACKERS: Final = frozenset(("tar", "bsdtar", "unzip", "7z", "7za", "cpio", "unar", "unrar", "ar", "dpkg-deb"))
_STDIN: Final = "/dev/fd/0"


def remember(state: State, name: str, argv: tuple[Word, ...], stdin: ShellOutput | None) -> None:
    """Files whose content, or whose likeness to a program, is known from here on."""
    if name in ("tee", "sponge") and stdin is not None:
        for word in operands(argv[1:]):
            if word.text:
                state.files[state.key(word.text)] = stdin
    elif name in ("curl", "wget"):
        _downloaded(state, name, argv)
    elif name in ("cp", "ln", "mv", "install", "link", "rsync", "scp"):
        _copied(state, name, argv, stdin)
    elif name in _UNPACKERS:
        archives = [state.files.get(state.key(word.text)) for word in argv[1:] if word.text]
        fed = stdin is not None and stdin.origin is Origin.NETWORK
        if fed or any(found is not None and found.origin is Origin.NETWORK for found in archives):
            state.unpacked = True
    elif name == "dd":
        _dd(state, argv, stdin)
    elif name in ("sed", "gsed"):
        _sed(state, argv, stdin)
    elif name == "hash":
        for _, value in option_values(argv[1:], frozenset(("-p",))):
            for word in operands(argv[1:], frozenset(("-p",))):
                if word.text and value.text:
                    state.twins[word.text] = value.text


def _downloaded(state: State, name: str, argv: tuple[Word, ...]) -> None:
    options = frozenset(("-o", "--output") if name == "curl" else ("-O", "--output-document"))
    named = [value.text for _, value in option_values(argv[1:], options) if value.text]
    if not named:
        named = [
            word.text.partition("?")[0].rstrip("/").rpartition("/")[2]
            for word in argv[1:]
            if word.text and "/" in word.text and not word.text.startswith("-")
        ]
    for path in named:
        if path:
            state.files[state.key(path)] = ShellOutput(None, Origin.NETWORK)


def _copied(state: State, name: str, argv: tuple[Word, ...], stdin: ShellOutput | None) -> None:
    words = [word.text for word in operands(argv[1:], _COPY_TAKES) if word.text]
    into = [value.text for _, value in option_values(argv[1:], frozenset(("-t", "--target-directory"))) if value.text]
    if into:
        pairs = [(word, f"{into[-1]}/{word.rpartition('/')[2]}") for word in words if word not in into]
    elif len(words) == 1 and name == "ln":
        pairs = [(words[0], words[0].rstrip("/").rpartition("/")[2])]
    elif len(words) >= 2:
        last = words[-1]
        pairs = [(word, f"{last}/{word.rpartition('/')[2]}") for word in words[:-1]]
        if len(words) == 2 and not last.endswith("/"):
            pairs.append((words[0], last))
    else:
        pairs = []
    letters = {letter for word in argv[1:] for letter in _letters(word.text)}
    symbolic = "s" in letters or any((word.text or "").startswith("--sym") for word in argv[1:])
    for source, target in pairs[:64]:
        if name in ("ln", "cp") and symbolic:
            state.link(source, target)
        place = state.key(source)
        known = stdin if place == _STDIN else state.files.get(place)
        if known is not None:
            state.files[state.key(target)] = known
        elif ":" not in source:
            state.twins[state.key(target)] = state.twins.get(place, place)


def _letters(text: str | None) -> str:
    return text[1:] if text and text.startswith("-") and not text.startswith("--") else ""


def _dd(state: State, argv: tuple[Word, ...], stdin: ShellOutput | None) -> None:
    given = dict((word.text or "").partition("=")[::2] for word in argv[1:])
    if "of" not in given:
        return
    target = state.key(given["of"])
    if "if" not in given or state.key(given["if"]) == _STDIN:
        if stdin is not None:
            state.files[target] = stdin
    elif state.key(given["if"]) in state.files:
        state.files[target] = state.files[state.key(given["if"])]
    else:
        state.files[target] = ShellOutput(None, Origin.FILE, (), (given["if"],))


def _sed(state: State, argv: tuple[Word, ...], stdin: ShellOutput | None) -> None:
    """`sed -n 'w file'` writes what it reads, changed or not."""
    for word in argv[1:]:
        text = word.text or ""
        cut = text.startswith(("w ", "W ")) or "/w " in text or ";w " in text
        if cut and stdin is not None:
            state.files[state.key(text.rpartition("w ")[2].strip())] = stdin
