"""Errors as answers: the table is total, and what an error carries arrives."""

from __future__ import annotations

import errno

import pytest

from ringfence import errors
from ringfence.server.problems import HTTP_CODES, STATUS, http_fault, problem_of, status_of
from ringfence.values.violation import Severity, Violation, ViolationType

FAMILY = {
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.RingfenceError)
}


def test_every_error_of_the_family_has_a_status_and_nothing_else_has() -> None:
    assert set(STATUS) == FAMILY
    assert all(400 <= status < 600 for status in (*STATUS.values(), *HTTP_CODES.values()))


def test_codes_of_http_are_none_of_the_family() -> None:
    assert not set(HTTP_CODES) & {error.code for error in FAMILY}


def test_what_an_error_carries_arrives() -> None:
    fault = errors.PathAccessDenied("/etc/shadow", "it is hidden", rule="blacklist", hint="do without")
    fault.violations = (Violation(ViolationType.PATH, Severity.HIGH, "refused", "blacklist"),)

    told = problem_of(fault, "r-1")

    assert (told.status, told.code, told.hint, told.request_id) == (403, "path_access_denied", "do without", "r-1")
    assert told.fields["path"] == "/etc/shadow" and told.fields["rule"] == "blacklist"
    assert told.fields["errno"] == errno.EACCES
    assert told.violations[0]["rule"] == "blacklist"


@pytest.mark.parametrize(("number", "status"), [(errno.ENOSPC, 507), (errno.EFBIG, 413), (errno.EIO, 409)])
def test_a_full_disk_and_the_like_have_their_own_status(number: int, status: int) -> None:
    assert status_of(errors.FileError("no", number=number)) == status


def test_a_fault_that_is_none_of_ours_is_told_as_no_more_than_that() -> None:
    told = problem_of(KeyError("secret-value"), "r-2")

    assert told.status == 500 and "secret" not in repr(told)


def test_a_fault_of_http_has_its_code_and_status() -> None:
    told = problem_of(http_fault("body_too_large", "no", hint="less"))

    assert (told.status, told.code, told.title, told.hint) == (413, "body_too_large", "no", "less")
