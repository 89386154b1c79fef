"""Takes defences of the verification out, to show that a trick works without them.

Each function is named after the defence that it removes. A case names these functions.
"""

from pytest import MonkeyPatch

from patchwright.resolver import verification
from patchwright.resolver.proof.canaries import Canary
from patchwright.resolver.security import patch_policy


def test_config_from_base(monkeypatch: MonkeyPatch) -> None:
    """The patch's test configuration is used, and nobody is told."""

    async def find_none(*_: object) -> frozenset[str]:
        return frozenset()

    monkeypatch.setattr(verification, "find_reverted_test_config", find_none)
    monkeypatch.setattr(patch_policy, "is_runner_config", lambda path: False)


def canaries(monkeypatch: MonkeyPatch) -> None:
    """No canary test checks the report."""
    monkeypatch.setattr(Canary, "check_run", lambda self, run: run)


def review_notes(monkeypatch: MonkeyPatch) -> None:
    """Nobody reads the added lines for words that can deceive test runs."""

    async def find_none(*_: object) -> list[str]:
        return []

    monkeypatch.setattr(patch_policy, "find_review_notes", find_none)


def tests_from_base(monkeypatch: MonkeyPatch) -> None:
    """The patch's version of the repository's tests decides."""
    monkeypatch.setattr(verification, "is_test_related", lambda path: False)
