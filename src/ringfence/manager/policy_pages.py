"""What the command line shows of policies: the effective settings, the remarks, a file to start from."""

from collections.abc import Sequence
from typing import Any, Final

from ringfence.policy import judging
from ringfence.policy.isolation import isolation_of
from ringfence.policy.layer import shown
from ringfence.policy.lint import Remark, lint
from ringfence.policy.model import Policy, Setting
from ringfence.policy.schema import Tighter, Type
from ringfence.policy.terms import Terms
from ringfence.values.sizes import show_size
from ringfence.values.verdict import Verdict

START: Final = """\
# A policy for `ringfence check --policy` and `Sandbox(policy=...)`.
# Every key: docs/policy.md. Is it right? `ringfence policy check policy.yaml`
policies:
  default:
    mode: normal                # permissive, normal, restricted or strict: a start for all that follows
    max_execution_time: 2m
    max_memory: 2GB
    # isolated: [own_kernel]    # what the wall of risky code has to give besides; for this one install gVisor
    # security_mode: strict     # what is risky: all that is not plainly safe; permissive: what looks dangerous
    network_access: false       # inside a box the network is off in any case
    filesystem:
      deny:                     # hidden, besides the built-in blacklist (~/.ssh, **/.env, ...)
        - "**/*.pem"
        - "**/*.key"

  tools:
    shell_exec:
      denied_commands:          # whatever the order of options, the wrapper or the nesting
        - command: rm -rf
          why: removes more than one notices
          matches: [rm -r -f build, sudo rm -fr /]
          spares: [rm build/old.o]
        - sudo
        - ssh
      # allowed_commands:       # from the first line on, nothing else may be run
      #   - git status
      #   - python

  # agent_roles:
  #   reviewer:
  #     inherits: default
  #     tools: [file_read, search]   # the only tools of this role

  # approvals:                  # belongs into `default`, a tool or a role
  #   ask_for:
  #     patterns: [git push]
  #   timeout: 2m
"""


def remarks(policy: Policy, earlier: Sequence[Policy] = ()) -> tuple[Remark, ...]:
    """What is worth a second look in a policy."""
    return lint(policy, earlier)


def explained(terms: Terms) -> dict[str, Any]:
    """What holds for a tool in a role, as plain values, each with the place that says so."""
    against = next((vote for vote in judging.on_tool(terms) if vote.verdict is Verdict.DENY), None)
    return {
        "usable": against is None,
        "why": str(against) if against else "",
        "risk": terms.risk.value,
        "handling": terms.handling,
        "settings": {
            name: {"value": _plain(setting), "at": f"{setting.written}, {setting.mark}"}
            for name, setting in terms.settings.items()
            if name != "tools"
        },
        "isolates": isolation.sentence if (isolation := isolation_of(terms)) is not None else "",
        "notes": list(terms.notes),
    }


def _plain(setting: Setting) -> Any:
    value = setting.value
    if setting.key.type is Type.SIZE:
        return show_size(value)
    if setting.key.type is Type.DURATION:
        return f"{value:g}s"
    if setting.key.tighter is Tighter.EVERY_LIST:
        lists = [[_row(row) for row in rows] for rows in value]
        return lists[0] if len(lists) == 1 else [f"every one of: {' | '.join(map(str, rows))}" for rows in lists]
    if isinstance(value, tuple):
        return [_row(row) for row in value]
    return shown(value)


def _row(row: Any) -> Any:
    return getattr(row, "written", None) or getattr(row, "text", None) or row
