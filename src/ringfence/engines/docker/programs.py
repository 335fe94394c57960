"""Which programs an image has: asked once of each image, in a container of its own that holds nothing else."""

from collections.abc import Sequence

ASK = (
    "/bin/sh",
    "-c",
    "IFS=:; for d in $PATH; do "
    'for f in "$d"/*; do [ -f "$f" ] && [ -x "$f" ] && printf "%s\\0" "$f"; done; '
    "done; exit 0",
)
"""Prints all that PATH reaches, each ended by a NUL byte, in the order in which a shell would find them."""
_SHELLS = ("bash", "sh")
_PYTHONS = ("python3", "python")


class ImagePrograms:
    def __init__(self, paths: Sequence[str]) -> None:
        self._paths: dict[str, str] = {}
        self._all = frozenset(paths)
        for path in paths:
            self._paths.setdefault(path.rpartition("/")[2], path)

    @classmethod
    def parse(cls, said: bytes) -> "ImagePrograms":
        return cls([path.decode("utf-8", "surrogateescape") for path in said.split(b"\0") if path.startswith(b"/")])

    @property
    def shell(self) -> str:
        return self.find(_SHELLS) or "/bin/sh"

    @property
    def python(self) -> str | None:
        return self.find(_PYTHONS)

    def find(self, names: tuple[str, ...]) -> str | None:
        return next((self._paths[name] for name in names if name in self._paths), None)

    def has(self, word: str) -> bool:
        return word in self._paths or word in self._all

    def reaches(self, path: str) -> bool:
        """Whether one of them lies at this very place."""
        return path in self._all
