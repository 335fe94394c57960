"""Chooses where code runs, from the advice and the mode."""

from ringfence.values.risk import Assessment, Risk, Route, SecurityMode


def route(assessment: Assessment, mode: SecurityMode, *, light_when_safe: bool = False) -> Route:
    """Where a piece of code runs: behind a wall in any case.

    Advice only ever adds to the wall, with one exception that has to be asked for: under PERMISSIVE and with
    `light_when_safe`, code that is SAFE runs behind the lightest one, which holds if the advice was wrong.
    """
    risk = assessment.risk
    match mode:
        case SecurityMode.STRICT:
            return Route.WALLED if risk is Risk.SAFE else Route.ISOLATED
        case SecurityMode.PERMISSIVE:
            if risk is Risk.SAFE and light_when_safe:
                return Route.DIRECT
            return Route.ISOLATED if risk >= Risk.HIGH else Route.WALLED
