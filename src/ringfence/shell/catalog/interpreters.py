"""Shells and interpreters: which options carry code, which take a value."""

from typing import Final

from ringfence.shell.catalog.base import names as _set

SHELLS: Final = _set(
    "sh bash dash zsh ksh ksh93 mksh ash rbash fish csh tcsh yash posh oksh lksh busybox-sh sash elvish nu xonsh osh"
    " rc es ion"
)
SHELL_TAKES: Final = _set("-o +o -O +O --rcfile --init-file --emulate -C --init-command")
LOADERS: Final = ("ld-linux", "ld-musl", "ld.so", "ld64.so")
"""The dynamic linker runs the program that it is given."""
LOADER_LOADS: Final = _set("--preload --audit --library-path")
"""What these name becomes part of the program."""
LOADER_TAKES: Final = _set("--library-path --preload --argv0 --audit --glibc-hwcaps-mask --inhibit-rpath")

INTERPRETERS: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    # name: (options whose value is code, other options with a value)
    "python": (_set("-c"), _set("-W -X -m --check-hash-based-pycs")),
    "pypy": (_set("-c"), _set("-W -X -m")),
    "perl": (_set("-e -E"), _set("-I -M -m")),
    "ruby": (_set("-e"), _set("-I -r -C")),
    "node": (_set("-e -p -pe --eval --print"), _set("-r --require --import --loader")),
    "nodejs": (_set("-e -p -pe --eval --print"), _set("-r --require --import")),
    "bun": (_set("-e --eval -p --print"), _set("-r --preload")),
    "deno": (_set(), _set("--config -c")),
    "php": (_set("-r -B -R -E"), _set("-d -c -z")),
    "lua": (_set("-e"), _set("-l")),
    "luajit": (_set("-e"), _set("-l")),
    "tclsh": (_set(), _set()),
    "wish": (_set(), _set()),
    "expect": (_set("-c"), _set("-f")),
    "jjs": (_set(), _set()),
    "gjs": (_set("-c"), _set("-I")),
    "qjs": (_set("-e"), _set("-I")),
    "lua5": (_set("-e"), _set("-l")),
    "luajit-2": (_set("-e"), _set("-l")),
    "texlua": (_set("-e"), _set("-l")),
    "raku": (_set("-e"), _set("-I -M")),
    "crystal": (_set(), _set()),
    "tsx": (_set("-e --eval -p"), _set("-r --require --import")),
    "ts-node": (_set("-e -p --eval --print"), _set("-r --require -P --project")),
    "ksh-lua": (_set("-e"), _set()),
    "osascript": (_set("-e"), _set("-l")),
    "Rscript": (_set("-e"), _set()),
    "R": (_set("-e"), _set("-f")),
    "groovy": (_set("-e"), _set("-cp")),
    "scala": (_set("-e"), _set("-cp")),
    "julia": (_set("-e -E --eval --print"), _set("-L -J")),
    "elixir": (_set("-e --eval"), _set("-r")),
    "guile": (_set("-c"), _set("-l -L")),
    "emacs": (_set("--eval -eval"), _set("-l --load")),
}
