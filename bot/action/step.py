"""One run inside a GitHub Actions workflow: an event file in, step outputs and a job summary out.

Source: docs.github.com/actions/reference/workflows-and-actions/workflow-commands and .../variables
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import TypeAlias, assert_never

from bot.action.answers import Answer, nothing_answered
from bot.webhooks.delivery import Delivery, Unreadable, read
from bot.webhooks.triggers import Triggers, wish_for
from bot.worker import Apologize, Resolve, Stopped, cause_of
from resolver.cost import AtLeast
from resolver.delivery import delivery_prose
from resolver.domain import Asked, Commented, Delivered, Job, Outcome, Refused, Spent, Verdict
from resolver.errors import (
    Forbidden,
    LogError,
    ModelRefused,
    NotFound,
    ResolverError,
    SettingsError,
    Unauthorized,
    Withheld,
)
from resolver.events import Trajectory
from resolver.summary import summarize
from runtime.errors import SandboxError

Write: TypeAlias = Callable[[str], object]

OUTPUTS = ("outcome", "pull-request", "branch", "verdict", "cost-usd", "tokens", "run-page")
"""Of the step, as action.yml names them; "" is "there is none"."""

NOTHING: Mapping[str, str] = MappingProxyType({})

MOST_EVENT = 26 * 2**20  # bytes; a webhook's payload has 25 MB at most

CANCEL_SECONDS = 7.0
"""Source: docs.github.com/actions/reference/workflows-and-actions/workflow-cancellation"""

OPERATORS = (SettingsError, ModelRefused, NotFound, Unauthorized, Forbidden)
"""Errors that another try does not mend: somebody must change something."""


def no_page(job: Job) -> None:
    """Nobody wants to see the run."""


async def run_action(
    environ: Mapping[str, str],
    resolve: Resolve,
    *,
    rules: Triggers,
    read: Callable[[Job], Trajectory],
    apologize: Apologize,
    answer: Answer = nothing_answered,
    page: Callable[[Job], Path | None] = no_page,
    found: Delivery | None = None,
    secrets: Iterable[str] = (),
    write: Write = lambda line: print(line, flush=True),
) -> int:
    """The exit code for the event that `environ` names (GITHUB_EVENT_PATH, GITHUB_EVENT_NAME).

    0 delivered, prepared for a job that may write, answered by `answer`, or nothing was asked; 3 commented; 4 refused;
    6 asked; 2 an operator must act; 1 the machine failed.
    Outputs go to GITHUB_OUTPUT and a summary to GITHUB_STEP_SUMMARY, where they are named. `page` writes the run as a
    file; `found` is worked on in the event's place. Raises SettingsError when there is no event.
    """
    delivery = found or event_of(environ)
    if (wish := wish_for(delivery, rules)) is None:
        if found is not None:
            write("Nothing was missed: whatever was asked for in the last days has been answered.")
        else:
            write(
                f"This event asks for nothing: no label {rules.label}, no mention of {rules.mention} by a person."
            )
        _report(environ, {"outcome": "ignored"}, "")
        return 0
    job = wish.job
    if environ.get("GITHUB_ACTIONS") == "true":  # elsewhere this would print the secrets, and hide nothing
        _mask(secrets, write)
    told = _Told(environ, job, read, page)
    with _no_commands(write):
        try:
            if await answer(job):
                told.ending("answered")
                return 0
            outcome = await resolve(job)
        except Withheld:
            told.prepared()
            write(f"{job.repo}#{job.number}: prepared, to be published by a job that may write")
            return 0
        except asyncio.CancelledError:
            # The runner kills what is left 10 s after its signal. In a task of its own: see Worker.run.
            stopped = _tell(job, Stopped("The workflow was cancelled."), apologize, write)
            await asyncio.wait((asyncio.create_task(stopped),), timeout=CANCEL_SECONDS)
            told.ending("cancelled")
            raise
        except (ResolverError, SandboxError, ExceptionGroup) as exc:
            error = cause_of(exc)
            if not isinstance(error, ResolverError | SandboxError):
                raise
            write(f"patchwright: {error}")
            await _tell(job, error, apologize, write)
            told.ending("error", {"Error": escaped(str(error))})
            return 2 if isinstance(error, OPERATORS) else 1
        told.outcome(outcome)
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


def counted(spent: Spent) -> dict[str, str]:
    """The outputs that say what a run cost; "" is one of which some price is not known."""
    return {
        "cost-usd": "" if spent.unpriced else str(spent.usd),
        "tokens": str(spent.tokens),
    }


class _Told:
    """What the runner and people learn of a job's end."""

    def __init__(
        self,
        environ: Mapping[str, str],
        job: Job,
        read: Callable[[Job], Trajectory],
        page: Callable[[Job], Path | None],
    ) -> None:
        self._environ, self._job, self._read, self._page = environ, job, read, page

    @property
    def trajectory(self) -> Trajectory:
        """The run's; an empty one when there is none, or it broke off before."""
        try:
            return self._read(self._job)
        except LogError:
            return Trajectory()

    def outcome(self, outcome: Outcome) -> None:
        verdict = outcome.verdict if isinstance(outcome, Delivered | Commented) else None
        values = {
            "pull-request": outcome.url if isinstance(outcome, Delivered) else "",
            "branch": outcome.branch or "" if isinstance(outcome, Delivered | Commented) else "",
        }
        self.ending(outcome.kind, _rows(outcome), values, verdict)

    def prepared(self) -> None:
        verdict = self.trajectory.verdict
        rows = {"Verdict": verdict.kind, "Why": escaped(verdict.reason)} if verdict else NOTHING
        self.ending("prepared", rows, verdict=verdict)

    def ending(
        self,
        kind: str,
        rows: Mapping[str, str] = NOTHING,
        values: Mapping[str, str] = NOTHING,
        verdict: Verdict | None = None,
    ) -> None:
        """Write outputs and summary; a value that is left out is empty."""
        trajectory = self.trajectory
        page = self._page(self._job) if trajectory.started else None
        outputs = dict.fromkeys(OUTPUTS, "") | {"outcome": kind, **values}
        outputs |= counted(trajectory.spent()) if trajectory.entries else {}
        outputs |= {"verdict": verdict.kind if verdict else "", "run-page": str(page) if page else ""}
        rows = {**rows, "Branch": escaped(outputs["branch"])}
        cost = trajectory.spent().cost
        dollars = f"at least {cost.usd}" if isinstance(cost, AtLeast) else outputs["cost-usd"]
        rows |= {"US dollars": dollars, "Tokens": outputs["tokens"]}
        tests = ""
        if verdict is not None and trajectory.started:
            tests = delivery_prose.job_summary(verdict, summarize(trajectory))
        _report(self._environ, outputs, _summary(self._job, kind, rows, tests))


def escaped(text: str) -> str:
    """Foreign text for one cell of a Markdown table: no markup, no link, no image, no line break."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))


def event_of(environ: Mapping[str, str]) -> Delivery:
    """What the workflow's event says. Raises SettingsError when it cannot be read, or is another repository's."""
    path, name = environ.get("GITHUB_EVENT_PATH"), environ.get("GITHUB_EVENT_NAME")
    if not path or not name:
        raise SettingsError("GITHUB_EVENT_PATH or GITHUB_EVENT_NAME is not set: this runs in a workflow.")
    try:
        with Path(path).open("rb") as file:
            body = file.read(MOST_EVENT + 1)
        if len(body) > MOST_EVENT:
            raise SettingsError(
                f"GITHUB_EVENT_PATH has more than {MOST_EVENT} bytes: no event of GitHub's has."
            )
        delivery = read(name, body)
    except OSError as exc:
        raise SettingsError(f"GITHUB_EVENT_PATH cannot be read: {exc}.") from exc
    except Unreadable as exc:
        raise SettingsError(f"GITHUB_EVENT_PATH is not the payload of {name}: {exc}.") from exc
    here, there = environ.get("GITHUB_REPOSITORY"), str(getattr(delivery, "repo", ""))
    if here and there and here.lower() != there.lower():
        raise SettingsError(
            f"The event in GITHUB_EVENT_PATH is one of {there}, and this is a workflow of {here}."
        )
    return delivery


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


def _rows(outcome: Outcome) -> dict[str, str]:
    match outcome:
        case Delivered(url=url, draft=draft, verdict=verdict):
            rows = {"Pull request": f"{url}{' (draft)' if draft else ''}", "Verdict": verdict.kind}
            return rows | {"Why": escaped(verdict.reason)}
        case Commented(url=url, reason=reason, verdict=verdict):
            return {"Comment": url, "Verdict": verdict.kind, "Why": escaped(reason)}
        case Asked(url=url, question=question):
            return {"Question": escaped(question), "Comment": url}
        case Refused(explanation=explanation):
            return {"Why": escaped(explanation)}
        case _:
            assert_never(outcome)


def _summary(job: Job, ending: str, rows: Mapping[str, str], tests: str) -> str:
    table = [f"| {name} | {value} |" for name, value in rows.items() if value]
    head = [f"### {job.repo}#{job.number}: {ending}", "", "| | |", "|---|---|", *table, ""]
    return "\n".join([*head, tests] if tests else head)


def _report(environ: Mapping[str, str], values: Mapping[str, str], summary: str) -> None:
    if path := environ.get("GITHUB_OUTPUT"):
        end = token_hex(16)  # nobody can guess the line that ends a value
        _append(path, "".join(f"{name}<<{end}\n{value}\n{end}\n" for name, value in values.items()))
    if (path := environ.get("GITHUB_STEP_SUMMARY")) and summary:
        _append(path, summary)


def _append(path: str, text: str) -> None:
    with Path(path).open("a", encoding="utf-8", errors="replace") as file:
        file.write(text)
