"""Files that a program reads and runs without being told so, if they are there: by name, and in which language."""

from typing import Final

_MAKE: Final = dict.fromkeys(("GNUmakefile", "makefile", "Makefile"), "make")
_NODE: Final = {"package.json": "scripts"}
_PYTEST: Final = {"conftest.py": "python", "pytest.ini": "scripts"}
_BUILD: Final = {"setup.py": "python", "build.py": "python", "pyproject.toml": "scripts"}

UNASKED: Final[dict[str, dict[str, str]]] = {
    "make": _MAKE,
    "gmake": _MAKE,
    "just": dict.fromkeys(("justfile", "Justfile", ".justfile"), "make"),
    "npm": _NODE,
    "npx": _NODE,
    "pnpm": _NODE,
    "yarn": _NODE,
    "bun": _NODE,
    "pytest": _PYTEST,
    "py.test": _PYTEST,
    "tox": {"tox.ini": "scripts", "setup.py": "python", "conftest.py": "python"},
    "nox": {"noxfile.py": "python"},
    "pip": _BUILD,
    "pip3": _BUILD,
    "uv": _BUILD | _PYTEST,
    "invoke": {"tasks.py": "python"},
    "fab": {"fabfile.py": "python"},
    "scons": {"SConstruct": "python"},
    "python": _PYTEST | {"sitecustomize.py": "python"},
    "rake": {"Rakefile": "ruby", "rakefile": "ruby"},
    "bundle": {"Gemfile": "ruby"},
    "vagrant": {"Vagrantfile": "ruby"},
    "brew": {"Brewfile": "ruby"},
    "cmake": {"CMakeLists.txt": "cmake"},
    "cargo": {"build.rs": "rust", ".cargo/config.toml": "scripts"},
    "gdb": {".gdbinit": "gdb"},
    "vim": {".vimrc": "vim", ".exrc": "vim"},
    "gradle": {"build.gradle": "groovy", "settings.gradle": "groovy"},
    "gradlew": {"build.gradle": "groovy"},
    "task": dict.fromkeys(("Taskfile.yml", "Taskfile.yaml"), "scripts"),
    "docker": dict.fromkeys(("Dockerfile", "compose.yml", "compose.yaml", "docker-compose.yml"), "scripts"),
    "docker-compose": dict.fromkeys(("compose.yml", "compose.yaml", "docker-compose.yml"), "scripts"),
    "podman": dict.fromkeys(("Dockerfile", "Containerfile"), "scripts"),
    "pre-commit": {".pre-commit-config.yaml": "scripts"},
    "lefthook": {"lefthook.yml": "scripts"},
    "foreman": {"Procfile": "scripts"},
    "honcho": {"Procfile": "scripts"},
    "act": {".github/workflows/ci.yml": "scripts"},
    "direnv": {".envrc": ""},
    "webpack": {"webpack.config.js": "node"},
    "jest": {"jest.config.js": "node"},
    "vitest": {"vitest.config.ts": "node", "vitest.config.js": "node"},
    "vite": {"vite.config.js": "node", "vite.config.ts": "node"},
    "eslint": {".eslintrc.js": "node", "eslint.config.js": "node"},
    "gulp": {"gulpfile.js": "node"},
    "grunt": {"Gruntfile.js": "node"},
    "mocha": {".mocharc.js": "node"},
    "git": {
        ".git/config": "gitconfig",
        ".gitconfig": "gitconfig",
        **{
            f".git/hooks/{hook}": ""
            for hook in ("pre-commit", "post-checkout", "pre-push", "commit-msg", "post-merge", "post-commit",
                         "pre-rebase", "prepare-commit-msg", "post-rewrite", "pre-merge-commit")
        },
    },
    "screen": {".screenrc": "scripts"},
    "tmux": {".tmux.conf": "scripts"},
    "sqlite3": {".sqliterc": "sql"},
    "psql": {".psqlrc": "sql"},
    "lldb": {".lldbinit": "gdb"},
    "R": {".Rprofile": "R"},
    "Rscript": {".Rprofile": "R"},
    "bash": {".bashrc": ""},
}  # fmt: skip
"""An empty language is the shell's; `scripts` stands for settings of which some values are commands."""
