"""Errors cross the wire whole: every class, with every field."""

import errno
import json
from typing import Any

import pytest

from ringfence import errors
from ringfence.errors import Internal, InvalidConfig, RingfenceError
from ringfence.values.faults import family, plain_fault, revived_fault
from ringfence.values.violation import Severity, Violation, ViolationType

EXAMPLES: list[RingfenceError] = [
    errors.InvalidArgument("no", argument="a", source="typescript", line=3, column=4, hint="h"),
    errors.WrongType("a", 3, "text", hint="h"),
    InvalidConfig("no", source="p.yaml", line=1, faults=(InvalidConfig("one", source="p.yaml", line=2, hint="x"),)),
    errors.CommandNotAllowed("no", command="rm", rule="r", hint="h"),
    errors.NetworkAccessDenied("a.example", "no", rule="r", hint="h"),
    errors.PathAccessDenied("/etc", "no", rule="r", hint="h"),
    errors.PathTraversalError("../x", "no", rule="r"),
    errors.FileError("full", path="/a", number=errno.ENOSPC, hint="h"),
    errors.NotFound("gone", path="/a"),
    errors.AlreadyExists("there", path="/a"),
    errors.IsADirectory("it is", path="/a"),
    errors.NotADirectory("it is not", path="/a"),
    errors.PermissionDenied("no", path="/a", number=errno.EROFS),
    errors.Closed("closed", hint="open"),
    errors.Unreachable("no server", hint="start it"),
    errors.Busy("busy"),
    errors.PoolExhausted("all taken"),
    errors.Damaged("bad", source="/state"),
    errors.BundleRefused("unsigned", "no signature", source="tool.wasm", hint="sign it"),
    errors.InitializationFailed("no wall", hint="doctor"),
    errors.NotInstalled("no httpx", hint="pip install"),
    errors.SpawnFailed("ls", "is not there", number=errno.ENOENT),
    errors.Timeout(3.5),
    errors.ResourceLimitExceeded("memory", 64.0, current=70.0, shown="64 MiB"),
    errors.CommandFailed("it exited with 3", 3),
    errors.BrowserError("no page", hint="navigate"),
    errors.BrowserGone("it ended"),
    errors.BrowserTimeout("not loaded", 3.5),
    errors.ElementNotFound("no button"),
    errors.StaleRef("e1", "left"),
    errors.ElementBlocked("covered"),
    errors.NavigationFailed("http://a", "refused", hint="h"),
    errors.QuestionNotOpen("q1"),
    errors.Unauthenticated("no token", hint="give one"),
    errors.NotPermitted("not you", scope="run"),
    errors.QuotaExceeded("too many", quota="sessions", limit=3),
    errors.SessionLost("gone", session_id="s"),
    Internal("oh"),
]


def everything(fault: BaseException) -> dict[str, Any]:
    of_system = {name: getattr(fault, name, None) for name in ("errno", "strerror", "filename")}
    inner = [everything(each) for each in getattr(fault, "faults", ())]
    own = {name: value for name, value in vars(fault).items() if name != "faults"}
    return own | of_system | {"args": fault.args, "text": str(fault), "inner": inner}


def test_there_is_an_example_of_every_class() -> None:
    assert {type(example) for example in EXAMPLES} == {
        kind for kind in family() if kind.__module__ == errors.__name__
    } - {RingfenceError}


@pytest.mark.parametrize("fault", EXAMPLES, ids=lambda fault: fault.code)
def test_an_error_comes_back_as_it_was(fault: RingfenceError) -> None:
    seen = Violation(ViolationType.PATH, Severity.HIGH, "no", "r", target="/etc", at=3.0)
    fault.violations = (seen,)

    back = revived_fault(json.loads(json.dumps(plain_fault(fault))))

    assert type(back) is type(fault)
    assert everything(back) == everything(fault)


def test_a_code_of_another_version_keeps_its_message() -> None:
    back = revived_fault({"code": "of_tomorrow", "message": "what happened"})

    assert isinstance(back, Internal)
    assert back.message == "what happened"
    assert "of_tomorrow" in back.hint


def test_nothing_but_the_fields_of_the_class_is_set() -> None:
    back = revived_fault({"code": "closed", "message": "m", "__class__": "x", "surprise": 1, "errno": 5})

    assert not hasattr(back, "surprise")
    with pytest.raises(ValueError, match="a field of an error"):
        revived_fault({"code": "not_found", "message": "m", "path": {"a": 1}})
