"""Finds entry points of other packages by name, and loads risk analyzers and policies from them. The operator's
settings contain the names.

Their code runs in this process on the host, so installing such a package means trusting it. If an analyzer or
a policy raises an exception, the run ends, because an unrated call must not be allowed.
"""

from importlib.metadata import EntryPoint, entry_points

from patchwright.resolver.errors import SettingsError
from patchwright.resolver.security.risk import RiskAnalyzer, RiskPolicy
from patchwright.resolver.settings.settings import Settings

ANALYZER_GROUP = "patchwright.analyzers"
POLICY_GROUP = "patchwright.policies"
TOOL_GROUP = "patchwright.tools"
SELF_RATING = "model"
"""The name in `risk_analyzers` with which the model rates its own calls."""


def check_plugins(settings: Settings) -> None:
    """Raises SettingsError if an analyzer or the policy in the settings cannot be loaded, or if a tool is unknown."""
    for name in settings.tools:
        find_entry_point(TOOL_GROUP, name)
    load_analyzers(settings)
    if settings.risk_policy is not None:
        load_policy(settings.risk_policy)


def load_analyzers(settings: Settings) -> tuple[RiskAnalyzer, ...]:
    """Returns the analyzers of other packages that the settings name. Raises SettingsError if one does not exist."""
    return tuple(_load_analyzer(name) for name in settings.risk_analyzers if name != SELF_RATING)


def _load_analyzer(name: str) -> RiskAnalyzer:
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


def find_entry_point(group: str, name: str) -> EntryPoint:
    """Returns an entry point of an installed package. Raises SettingsError with the known names."""
    entries = {entry.name: entry for entry in entry_points(group=group)}
    if name not in entries:
        names = ", ".join(sorted(entries)) or "none"
        raise SettingsError(
            f"{name} is not an entry point of {group}; available: {names}. Is its package installed?"
        )
    return entries[name]


def _load_entry_point(group: str, name: str) -> object:
    """Calls an entry point without arguments and returns the object that it creates."""
    entry = find_entry_point(group, name)
    try:
        return entry.load()()
    except (ImportError, AttributeError, TypeError) as exc:
        raise SettingsError(f"{name} of {group} cannot be loaded: {exc}") from exc
