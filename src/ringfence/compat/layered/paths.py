"""`PathPolicy`: which paths may be read and written, judged without looking into them."""

import os
from collections.abc import Iterable
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.errors import PathAccessDenied
from ringfence.policy.defaults import SENSITIVE
from ringfence.policy.globs import compiled
from ringfence.shell.context import CheckContext
from ringfence.values.paths import is_below

SENSITIVE_FILES: Final = tuple(row.removeprefix("**/") for row in SENSITIVE)
"""Names that are sensitive wherever they lie."""
ALLOWED_TMP_PREFIXES: Final = tuple(f"{prefix}/" for prefix in CheckContext().tmp_prefixes)
"""Below the temporary directories, where writes are confined."""
_TMP: Final = CheckContext().tmp_directories

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPolicy:
    """
    Args:
        strict_sensitive_files: whether sensitive files are refused, to readers and writers alike.
        allow_all_reads: whether everything else may be read.
    """

    allowed_read_paths: tuple[str, ...] = ()
    allowed_write_paths: tuple[str, ...] = ()
    strict_sensitive_files: bool = True
    allow_all_reads: bool = False

    def check_path(self, path: StrPath, write: bool = False) -> None:
        """
        Raises:
            PathAccessDenied: with the path, the rule, and what would allow it.
        """
        text = _tidy(path)
        if self.strict_sensitive_files and self.is_sensitive_file(text):
            raise PathAccessDenied(
                text,
                "it is a sensitive file",
                rule="strict_sensitive_files",
                hint="leave it alone, or set strict_sensitive_files to False",
            )
        if write and not self.is_write_allowed(text):
            rule = "allowed_write_paths"
            if self.is_temp_path(text) and not self.is_allowed_temp_path(text):
                rule = "temporary files"
            raise PathAccessDenied(text, "it may not be written", rule=rule, hint="allow_write(its directory)")
        if not write and not self.allow_all_reads and not self.is_read_allowed(text):
            raise PathAccessDenied(
                text, "it may not be read", rule="allowed_read_paths", hint="allow_read(its directory)"
            )

    def is_sensitive_file(self, path: StrPath) -> bool:
        return compiled(SENSITIVE).matches(_tidy(path)) is not None

    def is_temp_path(self, path: StrPath) -> bool:
        return _is_in(_tidy(path), _TMP)

    def is_allowed_temp_path(self, path: StrPath) -> bool:
        """Below one of the prefixes, or below a directory of the temporary ones that may be written."""
        text = _tidy(path)
        return text.startswith(ALLOWED_TMP_PREFIXES) or _is_in(text, self.allowed_write_paths)

    def is_write_allowed(self, path: StrPath) -> bool:
        return _is_in(_tidy(path), self.allowed_write_paths)

    def is_read_allowed(self, path: StrPath) -> bool:
        return _is_in(_tidy(path), (*self.allowed_read_paths, *self.allowed_write_paths))


def _tidy(path: StrPath) -> str:
    """Absolute, without `..`, and with links followed: a link in a granted directory may lead out of it."""
    return os.path.realpath(os.fspath(path))


def _is_in(path: str, directories: Iterable[str]) -> bool:
    return any(is_below(path, directory) for directory in directories)
