"""What the tools are allowed to do, for clients that ask a person before a call: hints, from the grant that holds."""

from dataclasses import dataclass

from ringfence.values.grant import Grant


@dataclass(frozen=True, slots=True)
class Powers:
    """What calls can do to the world outside of their box."""

    changes_project: bool = True
    """Whether what they write is in the project at once: not on a shadow, not where it can only be read."""
    reaches_network: bool = True

    @property
    def runs_harmlessly(self) -> bool:
        """Whether a command can neither change nor reach anything outside. Some clients ask nobody then."""
        return not self.changes_project and not self.reaches_network


UNKNOWN = Powers()
"""Where the options make no sense, so that there is no grant: the most, and every call says what is wrong."""


def powers_of(grant: Grant, *, on_shadow: bool) -> Powers:
    written = set(grant.writable_roots) - ({grant.workspace} if on_shadow else set())
    return Powers(changes_project=bool(written), reaches_network=grant.network is not None)
