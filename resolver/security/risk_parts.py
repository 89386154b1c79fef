"""Analyzers and policies that other packages bring, by entry points that the operator names in the settings.

They run in this process, on the host: installing such a package is trusting it. What one raises ends the run, since a
call that nobody rated must not be let through.
"""

from importlib.metadata import entry_points

from resolver.errors import SettingsError
from resolver.security.risk import Analyzer, Policy

ANALYZERS = "patchwright.analyzers"
POLICIES = "patchwright.policies"


def brought_analyzer(name: str) -> Analyzer:
    """A new analyzer. Raises SettingsError when there is none of this name."""
    made = _made(ANALYZERS, name)
    if not isinstance(made, Analyzer):
        raise SettingsError(f"{name} of {ANALYZERS} makes what has no method `rate`, and so is no analyzer")
    return made


def brought_policy(name: str) -> Policy:
    """A new policy. Raises SettingsError when there is none of this name."""
    made = _made(POLICIES, name)
    if not isinstance(made, Policy):
        raise SettingsError(f"{name} of {POLICIES} makes what has no method `allows`, and so is no policy")
    return made


def _made(group: str, name: str) -> object:
    """What an entry point makes when it is called without arguments."""
    known = {entry.name: entry for entry in entry_points(group=group)}
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise SettingsError(
            f"{name} is no entry point of {group}; there are: {there}. Is its package installed?"
        )
    try:
        return known[name].load()()
    except (ImportError, AttributeError, TypeError) as exc:
        raise SettingsError(f"{name} of {group} cannot be loaded: {exc}") from exc
