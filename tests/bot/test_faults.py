"""Every error that can end a job has one fault."""

import pytest

import patchwright.bot.errors
import patchwright.resolver.errors
import patchwright.runtime.errors
from patchwright.bot.faults import FAULTS, Fault, classify_error
from patchwright.bot.job_runner import JobAbandoned


def errors_of(module: object) -> list[type[Exception]]:
    return [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, Exception)
        and kind.__module__ == vars(module)["__name__"]
    ]


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        ("ModelBusy", "provider"),
        ("ContextOverflow", "provider"),
        ("ForgeUnavailable", "forge"),
        ("BranchMoved", "forge"),
        ("ChangeTooLarge", "repository"),
        ("SettingsError", "settings"),
        ("EngineDiskFull", "engine"),
        ("ImageUnavailable", "engine"),
        ("OutOfMemory", "sandbox"),
        ("VerificationUnavailable", "sandbox"),
        ("QueueDown", "store"),
        ("LogError", "store"),
    ],
)
def test_an_error_has_the_fault_of_its_base_class(error: str, fault: Fault) -> None:
    (kind,) = {
        getattr(module, error)
        for module in (patchwright.bot.errors, patchwright.resolver.errors, patchwright.runtime.errors)
        if hasattr(module, error)
    }
    assert classify_error(kind.__new__(kind)) == fault


def test_unclassified_errors_are_internal_faults() -> None:
    errors = [
        *errors_of(patchwright.bot.errors),
        *errors_of(patchwright.resolver.errors),
        *errors_of(patchwright.runtime.errors),
    ]
    assert len(errors) > 30
    internal = {kind.__name__ for kind in errors if classify_error(kind.__new__(kind)) == "internal"}
    assert internal == {
        "ResolverError",
        "Conflict",
        "Interrupted",
        "Unavailable",
        "WorkerFailed",
        "WriteBlocked",
    }
    assert [classify_error(error) for error in (JobAbandoned("never ends"), ZeroDivisionError())] == [
        "internal",
        "internal",
    ]
    assert {classify_error(kind.__new__(kind)) for kind in errors} == set(FAULTS)
