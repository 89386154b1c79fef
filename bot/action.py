"""One run inside a GitHub Actions workflow: an event file in, step outputs and a job summary out.

Source: docs.github.com/actions/reference/workflows-and-actions/workflow-commands and .../variables
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from secrets import token_hex
from typing import TypeAlias, assert_never

from bot.triggers import Triggers, wish_for
from bot.webhook import Delivery, Unreadable, read
from bot.worker import Apologize, Resolve, Stopped, cause_of
from bot.workflow_answers import Answer, nothing_answered
from resolver.domain import Asked, Commented, Delivered, Job, Outcome, Refused, Spent
from resolver.errors import (
    Forbidden,
    LogError,
    ModelRefused,
    NotFound,
    ResolverError,
    SettingsError,
    Unauthorized,
)
from runtime.errors import SandboxError

Write: TypeAlias = Callable[[str], object]

CANCEL_SECONDS = 7.0
"""Source: docs.github.com/actions/reference/workflows-and-actions/workflow-cancellation"""

OPERATORS = (SettingsError, ModelRefused, NotFound, Unauthorized, Forbidden)
"""Errors that another try does not mend: somebody must change something."""


async def run_action(
    environ: Mapping[str, str],
    resolve: Resolve,
    *,
    rules: Triggers,
    spent: Callable[[Job], Spent],
    apologize: Apologize,
    answer: Answer = nothing_answered,
    secrets: Iterable[str] = (),
    write: Write = lambda line: print(line, flush=True),
) -> int:
    """The exit code for the event that `environ` names (GITHUB_EVENT_PATH, GITHUB_EVENT_NAME).

    0 delivered, answered by `answer`, or nothing was asked; 3 commented; 4 refused; 6 asked; 2 an operator must act; 1
    the machine failed.
    Outputs go to GITHUB_OUTPUT and a summary to GITHUB_STEP_SUMMARY, where they are named. Raises SettingsError
    when there is no event.
    """
    delivery = _event(environ)
    if (wish := wish_for(delivery, rules)) is None:
        write(
            f"This event asks for nothing: no label {rules.label}, no mention of {rules.mention} by a person."
        )
        _report(environ, {"outcome": "ignored"}, "")
        return 0
    job = wish.job
    if environ.get("GITHUB_ACTIONS") == "true":  # elsewhere this would print the secrets, and hide nothing
        _mask(secrets, write)
    with _no_commands(write):
        try:
            if await answer(job):
                _report(environ, {"outcome": "answered"}, _summary(job, "answered", {}))
                return 0
            outcome = await resolve(job)
        except asyncio.CancelledError:
            # The runner kills what is left 10 s after its signal. In a task of its own: see Worker.run.
            stopped = _tell(job, Stopped("The workflow was cancelled."), apologize, write)
            await asyncio.wait((asyncio.create_task(stopped),), timeout=CANCEL_SECONDS)
            _report(environ, {"outcome": "cancelled", **_cost(job, spent)}, _summary(job, "cancelled", {}))
            raise
        except (ResolverError, SandboxError, ExceptionGroup) as exc:
            error = cause_of(exc)
            if not isinstance(error, ResolverError | SandboxError):
                raise
            write(f"patchwright: {error}")
            await _tell(job, error, apologize, write)
            values = {"outcome": "error", **_cost(job, spent)}
            _report(environ, values, _summary(job, "error", {"Error": escaped(str(error))}))
            return 2 if isinstance(error, OPERATORS) else 1
        values = outputs(outcome, spent(job))
        _report(environ, values, _summary(job, outcome.kind, _rows(outcome, values)))
        write(f"{job.repo}#{job.number}: {outcome.kind}")
    return exit_code(outcome)


def exit_code(outcome: Outcome) -> int:
    match outcome:
        case Delivered():
            return 0
        case Commented():
            return 3
        case Refused():
            return 4
        case Asked():
            return 6
        case _:
            assert_never(outcome)


def _cost(job: Job, spent: Callable[[Job], Spent]) -> dict[str, str]:
    """What a run had cost when it broke off; nothing when there is no log of it."""
    try:
        return counted(spent(job))
    except LogError:
        return {}


def counted(spent: Spent) -> dict[str, str]:
    """The outputs that say what a run cost; "" is a price that is not known."""
    return {
        "cost-usd": "" if spent.unpriced else str(spent.usd),
        "tokens": str(spent.prompt_tokens + spent.completion_tokens),
    }


def outputs(outcome: Outcome, spent: Spent) -> dict[str, str]:
    """The step's outputs, as action.yml names them; "" is "there is none"."""
    return {
        "outcome": outcome.kind,
        "pull-request": outcome.url if isinstance(outcome, Delivered) else "",
        "branch": outcome.branch or "" if isinstance(outcome, Delivered | Commented) else "",
        "verdict": outcome.verdict.kind if isinstance(outcome, Delivered | Commented) else "",
        **counted(spent),
    }


def escaped(text: str) -> str:
    """Foreign text for one cell of a Markdown table: no markup, no link, no image, no line break."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))


def _event(environ: Mapping[str, str]) -> Delivery:
    path, name = environ.get("GITHUB_EVENT_PATH"), environ.get("GITHUB_EVENT_NAME")
    if not path or not name:
        raise SettingsError("GITHUB_EVENT_PATH or GITHUB_EVENT_NAME is not set: this runs in a workflow.")
    try:
        return read(name, Path(path).read_bytes())
    except OSError as exc:
        raise SettingsError(f"GITHUB_EVENT_PATH cannot be read: {exc}.") from exc
    except Unreadable as exc:
        raise SettingsError(f"GITHUB_EVENT_PATH is not the payload of {name}: {exc}.") from exc


async def _tell(job: Job, error: Exception, apologize: Apologize, write: Write) -> None:
    try:
        await apologize(job, error)
    except (ResolverError, OSError) as exc:  # the forge may be what failed
        write(f"patchwright: the issue could not be told: {exc}")


def _mask(secrets: Iterable[str], write: Write) -> None:
    for line in {line for secret in secrets for line in secret.splitlines() if line.strip()}:
        write(f"::add-mask::{line.replace('%', '%25')}")


@contextlib.contextmanager
def _no_commands(write: Write) -> Iterator[None]:
    """Whatever anybody prints in this block is text to the runner: `::set-output` in an issue does nothing."""
    token = token_hex(16)
    write(f"::stop-commands::{token}")
    try:
        yield
    finally:
        write(f"::{token}::")


def _rows(outcome: Outcome, values: Mapping[str, str]) -> dict[str, str]:
    match outcome:
        case Delivered(url=url, draft=draft, verdict=verdict):
            rows = {"Pull request": f"{url}{' (draft)' if draft else ''}", "Verdict": verdict.kind}
            rows["Why"] = escaped(verdict.reason)
        case Commented(url=url, reason=reason, verdict=verdict):
            rows = {"Comment": url, "Verdict": verdict.kind, "Why": escaped(reason)}
        case Asked(url=url, question=question):
            rows = {"Question": escaped(question), "Comment": url}
        case Refused(explanation=explanation):
            rows = {"Why": escaped(explanation)}
        case _:
            assert_never(outcome)
    return rows | {
        "Branch": escaped(values["branch"]),
        "US dollars": values["cost-usd"],
        "Tokens": values["tokens"],
    }


def _summary(job: Job, ending: str, rows: Mapping[str, str]) -> str:
    table = [f"| {name} | {value} |" for name, value in rows.items() if value]
    return "\n".join([f"### {job.repo}#{job.number}: {ending}", "", "| | |", "|---|---|", *table, ""])


def _report(environ: Mapping[str, str], values: Mapping[str, str], summary: str) -> None:
    if path := environ.get("GITHUB_OUTPUT"):
        end = token_hex(16)  # nobody can guess the line that ends a value
        _append(path, "".join(f"{name}<<{end}\n{value}\n{end}\n" for name, value in values.items()))
    if (path := environ.get("GITHUB_STEP_SUMMARY")) and summary:
        _append(path, summary)


def _append(path: str, text: str) -> None:
    with Path(path).open("a", encoding="utf-8", errors="replace") as file:
        file.write(text)
