"""Reads the configuration file and the settings from where the environment says they are."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from ringfence.audit.journal import Journal
from ringfence.engines.descriptors import hint as descriptors_hint
from ringfence.engines.descriptors import out_of_descriptors
from ringfence.errors import InitializationFailed, InvalidConfig
from ringfence.policy.audit_settings import read_audit_settings
from ringfence.policy.config import SandboxConfig, config_location, defaults_because, parse_config, with_environment

_SIZE_MAX = 1024 * 1024


def load_config(environ: Mapping[str, str], home: str, path: str | os.PathLike[str] | None = None) -> SandboxConfig:
    """The configuration in force.

    Raises:
        InvalidConfig: a file that was named is not there, holds an unknown key, or a value that makes no sense.
        InitializationFailed: it may well be right, but no descriptor is left to read it with.
    """
    candidates = (os.fspath(path),) if path is not None else config_location(environ, home)
    for candidate in candidates:
        try:
            with open(candidate, "rb", opener=_without_waiting) as file:
                data = file.read(_SIZE_MAX + 1)
        except FileNotFoundError:
            if len(candidates) == 1:
                raise InvalidConfig("there is no such file", source=candidate, hint="name a file that exists") from None
            continue
        except OSError as fault:
            if len(candidates) > 1 and _is_socket(candidate):
                continue  # while a box runs that could make the file, one holds its place
            if out_of_descriptors(fault):  # what it forbids must not be allowed because the machine is busy
                raise InitializationFailed(
                    f"{candidate}: cannot be read: {fault.strerror}", hint=descriptors_hint()
                ) from fault
            return with_environment(defaults_because(f"cannot be read: {fault.strerror}", candidate), environ)
        if len(data) > _SIZE_MAX:
            return with_environment(defaults_because("is larger than a configuration can be", candidate), environ)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as fault:
            line = data[: fault.start].count(b"\n") + 1
            return with_environment(defaults_because("is not UTF-8", candidate, line=line), environ)
        return with_environment(parse_config(text, candidate), environ)
    return with_environment(SandboxConfig(), environ)


def _without_waiting(path: str, flags: int) -> int:
    """For `open`: a pipe that somebody has put there would keep us for ever."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def state_directory(environ: Mapping[str, str], home: str) -> Path:
    """Where the journal lies."""
    return Path(environ.get("RINGFENCE_STATE_DIR") or os.path.join(home, ".ringfence", "state"))


def agents_directory(environ: Mapping[str, str], home: str) -> Path:
    """Where the copies of the settings of coding agents lie (`ringfence wrap`)."""
    return Path(environ.get("RINGFENCE_AGENTS_DIR") or os.path.join(home, ".ringfence", "agents"))


def open_journal(environ: Mapping[str, str], home: str) -> Journal:
    """The journal, kept as the environment says; close it.

    Raises:
        InvalidConfig: what the environment says makes no sense, or the key that is to sign it cannot be used.
    """
    return Journal(state_directory(environ, home), read_audit_settings(environ))


def home_directory(environ: Mapping[str, str]) -> str:
    """The caller's home.

    Raises:
        InvalidConfig: there is none, so that `~/.ssh` would mean nothing and could not be hidden.
    """
    home = environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise InvalidConfig("there is no home directory", hint="set HOME")
    return os.path.normpath(home)
