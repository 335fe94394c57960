"""What holds for one tool in one role, after all layers: the settings by name, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ringfence.dataclass import dataclass, replace
from ringfence.policy.defaults import SENSITIVE
from ringfence.policy.document import Mark
from ringfence.policy.model import ROLE_TOOLS, Name, Setting
from ringfence.policy.rules import CommandRule, PathRule
from ringfence.policy.schema import BY_NAME, HANDLING, RiskLevel
from ringfence.values.facts import Strictness
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits, NobodySaid
from ringfence.values.risk import SecurityMode
from ringfence.values.verdict import Asking

if TYPE_CHECKING:
    from ringfence.policy.hosts import HostRule
    from ringfence.policy.reading import Directory

LIMIT_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "limits.wall": "wall_seconds",
        "limits.cpu": "cpu_seconds",
        "limits.memory": "memory_bytes",
        "limits.processes": "processes",
        "limits.open_files": "open_files",
        "limits.file_size": "file_bytes",
        "limits.output": "output_bytes",
        "limits.tmp": "tmp_bytes",
        "limits.disk": "disk_bytes",
        "limits.files": "files",
    }
)
"""Our name of a limit, and the field that holds it."""

_CALLER: Final = Mark("the caller", 1)
"""Where a setting stands that whoever calls us gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    tool: str
    role: str | None = None
    settings: Mapping[str, Setting]
    notes: tuple[str, ...] = ()
    """What a later layer asked for without effect."""

    def get(self, name: str) -> Setting | None:
        return self.settings.get(name)

    def value(self, name: str, default: Any = None) -> Any:
        setting = self.settings.get(name)
        return default if setting is None else setting.value

    @property
    def risk(self) -> RiskLevel:
        return RiskLevel(self.value("risk_level", RiskLevel.HIGH))

    @property
    def handling(self) -> str:
        """What the risk level leads to: direct, sandbox, sandbox with limits, human approval."""
        return HANDLING[self.risk]

    @property
    def strictness(self) -> Strictness:
        return Strictness(self.value("validation.strictness", Strictness.NORMAL))

    @property
    def asking(self) -> Asking:
        usual = Asking()
        return Asking(
            float(self.value("approvals.timeout", usual.timeout_seconds)),
            self.value("approvals.remember", "never") == "session",
        )

    @property
    def security_mode(self) -> SecurityMode:
        """Which code is isolated; strict, if nobody says."""
        return SecurityMode(self.value("security_mode", SecurityMode.STRICT))

    @property
    def requires(self) -> frozenset[Guarantee]:
        return self._guarantees("requires")

    @property
    def isolation_requires(self) -> frozenset[Guarantee]:
        """What code that is isolated needs of its wall, beyond `requires`."""
        return self._guarantees("isolation_requires")

    def under(self, mode: SecurityMode | None) -> Terms:
        """The same under the caller's security mode too: of two modes the stricter counts, None is no opinion."""
        said = self.get("security_mode")
        if mode is None or (said is not None and (mode is SecurityMode.PERMISSIVE or said.value == mode)):
            return self
        asked = Setting(BY_NAME["security_mode"], mode.value, _CALLER, "security_mode")
        return replace(self, settings={**self.settings, "security_mode": asked})

    @property
    def read(self) -> tuple[Directory, ...] | None:
        """Directories that may be read; None if no layer has an opinion."""
        return self._directories("filesystem.read")

    @property
    def write(self) -> tuple[Directory, ...] | None:
        return self._directories("filesystem.write")

    @property
    def hidden(self) -> tuple[PathRule, ...]:
        """What the wall has to hide: `filesystem.deny`, `denied_paths`, and sensitive files where they are hidden."""
        sensitive = self.get("validation.sensitive_files")
        rows = SENSITIVE if sensitive is not None and sensitive.value == "hide" else ()
        more = (
            PathRule(row, row, sensitive.mark, "is a sensitive file, and validation.sensitive_files is `hide`")
            for row in rows
            if sensitive is not None
        )
        return (*self.value("filesystem.deny", ()), *self.value("denied_paths", ()), *more)

    @property
    def tools(self) -> tuple[tuple[Name, ...], ...]:
        """The lists of tools that the role may use; a tool has to be in every one."""
        return tuple(self.value(ROLE_TOOLS.name, ()))

    def command_lists(self) -> tuple[tuple[CommandRule, ...], ...]:
        return tuple(self.value("allowed_commands", ()))

    def host_lists(self) -> tuple[tuple[HostRule, ...], ...]:
        return tuple(self.value("allowed_domains", ()))

    def path_lists(self) -> tuple[tuple[PathRule, ...], ...]:
        return tuple(self.value("allowed_paths", ()))

    def limits(self, otherwise: Limits, asked: Limits | None = None) -> Limits:
        """The limits in force: the policy's, else those of the configuration; a request may only lower the policy's."""
        said = {field: self.settings[name].value for name, field in LIMIT_FIELDS.items() if name in self.settings}
        base = otherwise if asked is None else asked
        limits = base.changed(**{field: _lower(value, asked, field) for field, value in said.items()})
        cores = self.value("max_cpu")
        return limits if cores is None else limits.on_cores(cores)

    def _guarantees(self, name: str) -> frozenset[Guarantee]:
        return frozenset(Guarantee(word.replace("_", " ")) for word in self.value(name, ()))

    def _directories(self, name: str) -> tuple[Directory, ...] | None:
        setting = self.settings.get(name)
        return None if setting is None else tuple(setting.value)


def _lower(value: float, asked: Limits | None, field: str) -> float:
    """The policy's limit, or the caller's where that is lower; a time that the caller has not given is no opinion."""
    own = getattr(asked, field) if asked is not None else value
    return value if isinstance(own, NobodySaid) else min(value, own)
