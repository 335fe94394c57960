"""How the journal is kept, as the environment says it."""

from pathlib import Path

import pytest

from ringfence.errors import InvalidConfig
from ringfence.policy.audit_settings import AuditSettings, Fsync, read_audit_settings

NAMES = {
    "RINGFENCE_AUDIT_FSYNC": "each",
    "RINGFENCE_AUDIT_FSYNC_INTERVAL": "500ms",
    "RINGFENCE_AUDIT_MAX_BYTES": "1MB",
    "RINGFENCE_AUDIT_KEY": "/etc/ringfence/audit.key",
    "RINGFENCE_AUDIT_CHECKPOINT_RECORDS": "50",
    "RINGFENCE_AUDIT_CHECKPOINT_INTERVAL": "5m",
    "RINGFENCE_REDACT": "corp-*-key falcon",
}


def test_nothing_set_means_the_defaults() -> None:
    assert read_audit_settings({}) == AuditSettings()


def test_every_variable_is_read_and_documented() -> None:
    assert read_audit_settings(NAMES) == AuditSettings(
        fsync=Fsync.EACH,
        fsync_seconds=0.5,
        max_bytes=1024 * 1024,
        key="/etc/ringfence/audit.key",
        checkpoint_records=50,
        checkpoint_seconds=300.0,
        redact=("corp-*-key", "falcon"),
    )
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RINGFENCE_AUDIT_FSYNC", "sometimes"),
        ("RINGFENCE_AUDIT_FSYNC_INTERVAL", "soon"),
        ("RINGFENCE_AUDIT_FSYNC_INTERVAL", "0s"),
        ("RINGFENCE_AUDIT_MAX_BYTES", "1KB"),
        ("RINGFENCE_AUDIT_MAX_BYTES", "much"),
        ("RINGFENCE_AUDIT_KEY", "audit.key"),
        ("RINGFENCE_AUDIT_CHECKPOINT_RECORDS", "0"),
        ("RINGFENCE_REDACT", "*"),
        ("RINGFENCE_REDACT", "falcon abc"),
        ("RINGFENCE_REDACT", "a*b*c*defgh"),
    ],
)
def test_a_value_that_makes_no_sense_is_an_error_that_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name) as caught:
        read_audit_settings({name: value})
    assert caught.value.hint
