"""Every error that a job can end with has one class."""

import pytest

import bot.errors
import resolver.errors
import runtime.errors
from bot.observe.faults import FAULTS, Fault, fault_of
from bot.worker import GaveUp


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
        ("Unanswered", "forge"),
        ("BranchMoved", "forge"),
        ("ChangeTooLarge", "repository"),
        ("SettingsError", "settings"),
        ("EngineFull", "engine"),
        ("ImageUnavailable", "engine"),
        ("OutOfMemory", "sandbox"),
        ("ProofUnavailable", "sandbox"),
        ("QueueDown", "store"),
        ("LogError", "store"),
    ],
)
def test_an_error_has_the_class_of_its_family(error: str, fault: Fault) -> None:
    (kind,) = {
        getattr(module, error)
        for module in (bot.errors, resolver.errors, runtime.errors)
        if hasattr(module, error)
    }
    assert fault_of(kind.__new__(kind)) == fault


def test_only_what_no_family_has_is_a_fault_of_our_own() -> None:
    every = [*errors_of(bot.errors), *errors_of(resolver.errors), *errors_of(runtime.errors)]
    assert len(every) > 30
    ours = {kind.__name__ for kind in every if fault_of(kind.__new__(kind)) == "ours"}
    assert ours == {"ResolverError", "Interrupted", "WorkerFailed", "Withheld"}
    assert [fault_of(error) for error in (GaveUp("never ends"), ZeroDivisionError())] == ["ours", "ours"]
    assert {fault_of(kind.__new__(kind)) for kind in every} == set(FAULTS)
