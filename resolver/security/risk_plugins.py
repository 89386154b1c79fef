"""Loads risk analyzers and policies from other packages. The operator's settings contain the names of their
entry points.

Their code runs in this process on the host, so installing such a package means trusting it. If an analyzer or
a policy raises an exception, the run ends, because an unrated call must not be allowed.
"""

from importlib.metadata import entry_points

from patchwright.resolver.errors import SettingsError
from patchwright.resolver.security.risk import RiskAnalyzer, RiskPolicy
from patchwright.resolver.settings.settings import Settings

ANALYZER_GROUP = "patchwright.analyzers"
POLICY_GROUP = "patchwright.policies"


def check_plugins(settings: Settings) -> None:
    """Raises SettingsError if an analyzer or the policy in the settings cannot be loaded."""
    for name in settings.risk_analyzers:
        load_analyzer(name)
    if settings.risk_policy is not None:
        load_policy(settings.risk_policy)


def load_analyzer(name: str) -> RiskAnalyzer:
    """Returns a new analyzer. Raises SettingsError if no analyzer has this name."""
    analyzer = _load_entry_point(ANALYZER_GROUP, name)
    if not isinstance(analyzer, RiskAnalyzer):
        raise SettingsError(
            f"{name} of {ANALYZER_GROUP} creates an object without a method `rate`, so it is not a RiskAnalyzer"
        )
    return analyzer


def load_policy(name: str) -> RiskPolicy:
    """Returns a new policy. Raises SettingsError if no policy has this name."""
    policy = _load_entry_point(POLICY_GROUP, name)
    if not isinstance(policy, RiskPolicy):
        raise SettingsError(
            f"{name} of {POLICY_GROUP} creates an object without a method `decide`, so it is not a RiskPolicy"
        )
    return policy


def _load_entry_point(group: str, name: str) -> object:
    """Calls an entry point without arguments and returns the object that it creates."""
    entries = {entry.name: entry for entry in entry_points(group=group)}
    if name not in entries:
        names = ", ".join(sorted(entries)) or "none"
        raise SettingsError(
            f"{name} is not an entry point of {group}; available: {names}. Is its package installed?"
        )
    try:
        return entries[name].load()()
    except (ImportError, AttributeError, TypeError) as exc:
        raise SettingsError(f"{name} of {group} cannot be loaded: {exc}") from exc
