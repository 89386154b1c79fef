"""Writes the result of a job to the outputs and the job summary of a workflow step.

Source: docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import assert_never

from patchwright.bot.github_action.operator_messages import escape_markdown
from patchwright.resolver.activity.summary import Summary, summarize_run
from patchwright.resolver.cost import MinimumCost
from patchwright.resolver.descriptions import label_verdict
from patchwright.resolver.domain import (
    InputRequired,
    Job,
    Outcome,
    Published,
    Rejected,
    Reported,
    Usage,
    Verdict,
)
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import Trajectory
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.run_task import get_proposed_plan

OUTPUTS = ("outcome", "pull-request", "branch", "verdict", "cost-usd", "tokens", "run-page")
"""The names of the step's outputs, which action.yml declares. A missing value is written as ""."""

VERBS_WITHOUT_VERDICT = ("explain", "setup")
"""Commands that lead to no change to the code that could be tested."""

NO_VALUES: Mapping[str, str] = MappingProxyType({})


def usage_outputs(usage: Usage) -> dict[str, str]:
    """Returns the outputs that report usage. The cost is "" if the price of a model is unknown, or if no model
    has replied.
    """
    return {
        "cost-usd": _format_cost(usage.cost) if isinstance(usage.cost, Decimal) else "",
        "tokens": str(usage.tokens),
    }


def _format_cost(usd: Decimal) -> str:
    """Returns the cost, rounded to millionths of a dollar."""
    return f"{round(usd, 6).normalize():f}"


class JobReport:
    """Writes the result of a job to the step outputs and the job summary."""

    def __init__(
        self,
        environ: Mapping[str, str],
        job: Job,
        read_log: Callable[[Job], Trajectory],
        write_view: Callable[[Job], Path | None],
        has_details: bool,
    ) -> None:
        """`has_details` is False for the publish job. The summary of the job before it describes the run."""
        self._has_details = has_details
        self._environ, self._job, self._read_log, self._write_view = environ, job, read_log, write_view

    @property
    def trajectory(self) -> Trajectory:
        """The log of the job's run. It is empty if the log is missing or damaged."""
        try:
            return self._read_log(self._job)
        except LogError:
            return Trajectory()

    def report_outcome(self, outcome: Outcome) -> None:
        has_verdict = self._job.request.verb not in VERBS_WITHOUT_VERDICT
        verdict = outcome.verdict if isinstance(outcome, Published | Reported) and has_verdict else None
        values = {
            "pull-request": outcome.url if isinstance(outcome, Published) else "",
            "branch": outcome.branch or "" if isinstance(outcome, Published | Reported) else "",
        }
        rows = _outcome_rows(outcome)
        if get_proposed_plan(self.trajectory):
            rows = {"Plan" if name == "Question" else name: value for name, value in rows.items()}
        if verdict is None:
            rows.pop("Verdict", None)
        self.report(outcome.kind, rows, values, verdict)

    def report_answered(self, rejection: str) -> None:
        server = self._environ.get("GITHUB_SERVER_URL", "https://github.com")
        url = f"{server}/{self._job.repo}/issues/{self._job.number}"
        verb = escape_markdown(self._job.request.verb)
        row = {"Reason": format_sentence(rejection)} if rejection else {"Command": verb}
        self.report("answered", {**row, "Reply in": url})

    def report_prepared(self) -> None:
        verdict = None if self._job.request.verb in VERBS_WITHOUT_VERDICT else self.trajectory.verdict
        rows = (
            {"Verdict": _label(verdict), "Reason": format_sentence(verdict.reason)} if verdict else NO_VALUES
        )
        self.report("prepared", rows, verdict=verdict)

    def report(
        self,
        kind: str,
        rows: Mapping[str, str] = NO_VALUES,
        values: Mapping[str, str] = NO_VALUES,
        verdict: Verdict | None = None,
    ) -> None:
        """Writes the step outputs and the job summary. Missing values are empty."""
        trajectory = self.trajectory
        view = self._write_view(self._job) if trajectory.run_started else None
        outputs = dict.fromkeys(OUTPUTS, "") | {"outcome": kind, **values}
        outputs |= usage_outputs(trajectory.usage()) if trajectory.entries else {}
        outputs |= {"verdict": verdict.kind if verdict else "", "run-page": str(view) if view else ""}
        rows = {**rows, "Branch": escape_markdown(outputs["branch"])}
        cost = trajectory.usage().cost
        dollars = (
            f"at least {_format_cost(cost.usd)}" if isinstance(cost, MinimumCost) else outputs["cost-usd"]
        )
        tests = ""
        is_canceled = kind == "stopped"
        has_run = trajectory.run_started and (verdict is not None or trajectory.replies() or is_canceled)
        if self._has_details and has_run:
            tests = _run_text(verdict, summarize_run(trajectory), rows, is_canceled=is_canceled)
        elif self._has_details:  # The text about a run has the cost, too.
            rows |= {"Cost (USD)": dollars, "Tokens": outputs["tokens"]}
        write_outputs(self._environ, outputs, _job_summary(self._job, kind, rows, tests))


def _run_text(
    verdict: Verdict | None, summary: Summary, rows: Mapping[str, str], *, is_canceled: bool
) -> str:
    """Returns the text about a run below the table `rows`, without what these rows say already."""
    if any(escape_markdown(summary.stop_detail) in row for row in rows.values()):
        summary = summary.model_copy(update={"stopped_early": False})
    return render_reply("job_summary.md.j2", verdict=verdict, summary=summary, is_canceled=is_canceled)


def _outcome_rows(outcome: Outcome) -> dict[str, str]:
    match outcome:
        case Published(url=url, draft=draft, verdict=verdict):
            rows = {"Pull request": f"{url}{' (draft)' if draft else ''}", "Verdict": _label(verdict)}
            return rows | {"Reason": format_sentence(verdict.reason)}
        case Reported(url=url, reason=reason, verdict=verdict):
            row = {"Verdict": _label(verdict)} if verdict else {}
            return {"Comment": url, **row, "Reason": format_sentence(reason)}
        case InputRequired(url=url, question=question):
            return {"Question": escape_markdown(question), "Comment": url}
        case Rejected(explanation=explanation):
            return {"Reason": format_sentence(explanation)}
        case _:
            assert_never(outcome)


def _label(verdict: Verdict) -> str:
    return label_verdict(verdict.kind, documentation_only=verdict.documentation_only)


def format_sentence(text: str) -> str:
    """Escapes a reason for a table. Its first word starts with a capital letter, unless the word is a name."""
    return escape_markdown(re.sub(r"^[a-z]+(?=[ ,])", lambda match: match[0].capitalize(), text))


def _job_summary(job: Job, outcome: str, rows: Mapping[str, str], tests: str) -> str:
    table = [f"| {name} | {value} |" for name, value in rows.items() if value]
    head = [f"### {job.repo}#{job.number}: {outcome}", ""]
    if table:
        head += ["| | |", "|---|---|", *table, ""]
    return "\n".join([*head, tests] if tests else head)


def write_outputs(environ: Mapping[str, str], values: Mapping[str, str], summary: str) -> None:
    if path := environ.get("GITHUB_OUTPUT"):
        end = token_hex(16)  # The delimiter is random, so that no value can contain it and end early.
        _append(path, "".join(f"{name}<<{end}\n{value}\n{end}\n" for name, value in values.items()))
    if (path := environ.get("GITHUB_STEP_SUMMARY")) and summary:
        _append(path, summary)


def _append(path: str, text: str) -> None:
    with Path(path).open("a", encoding="utf-8", errors="replace") as file:
        file.write(text)
