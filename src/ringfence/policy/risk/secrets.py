"""Files that hold secrets, named by the literals of code in any language that can do more than compute. Advice only."""

import re
from typing import Final

from ringfence.policy.risk.findings import Findings
from ringfence.policy.risk.patterns.base import RiskRow
from ringfence.shell.checks.sensitive_path import is_run_later, is_secret
from ringfence.shell.literals import written_out
from ringfence.values.risk import Risk

_NAMES: Final = RiskRow(Risk.HIGH, "names a file that holds secrets")
_RUN_LATER: Final = RiskRow(Risk.HIGH, "names a file that somebody else's programs run later")
_LITERAL: Final = re.compile(r"""\"([^"\\\s]{2,200})"|'([^'\\\s]{2,200})'|`([^`\\\s]{2,200})`""")
_PUT_IN: Final = re.compile(r"\$?\{[^{}]*\}")


def add_secrets(code: str, found: Findings) -> None:
    """Add the secrets that the code names; not if it only computes and prints, since then it opens nothing."""
    if found.risk is Risk.SAFE:
        return
    for match in _LITERAL.finditer(written_out(code)):
        text = _PUT_IN.sub("", match[1] or match[2] or match[3])
        row = _NAMES if is_secret(text) else _RUN_LATER if is_run_later(text) else None
        if row is not None:
            found.add(text, row, code.count("\n", 0, min(match.start(), len(code))) + 1, 1)
