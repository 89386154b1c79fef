"""Renders the dashboard's pages. Each template has one typed function."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Literal
from urllib.parse import quote, urlencode

from markupsafe import Markup

from patchwright.bot.dashboard.dependencies import ComponentHealth
from patchwright.bot.dashboard.live_runs import RunPageView
from patchwright.bot.dashboard.run_list import STATES, VERDICTS, RunListPage, RunStatistics
from patchwright.bot.jobs import GitHubWait
from patchwright.bot.redis.sessions import Session
from patchwright.bot.run_summary import RunSummary, label_state
from patchwright.resolver.activity.failure import FAILURE_LABELS
from patchwright.resolver.cost import round_usd
from patchwright.resolver.descriptions import label_verdict
from patchwright.resolver.rendering import filters, jinja_templates
from patchwright.resolver.text.untrusted import escape_invisible

RejectionReason = Literal[
    "cross_site", "github_unavailable", "invalid_request", "login_required", "method_not_allowed", "not_found",
    "redis_unavailable", "too_large", "too_many_logins", "too_many_runs", "too_many_viewers",
    "write_access_required",
]  # fmt: skip
LoginProblem = Literal["canceled", "session_expired", "state_mismatch", "rejected", "wrong_token"]
"""The reason why the sign-in page is shown again after a failed sign-in."""
CommandVerb = Literal["stop", "retry", "approve", "reject", "message"]

STATIC_FILES = {
    "style.css": ("text/css; charset=utf-8", ("viewer/style.css.j2", "dashboard/style.css.j2")),
    "viewer.js": ("text/javascript; charset=utf-8", ("viewer/script.js.j2",)),
    "welcome.js": ("text/javascript; charset=utf-8", ("dashboard/welcome.js.j2",)),
    "dashboard.js": ("text/javascript; charset=utf-8", ("dashboard/dashboard.js.j2",)),
}


@dataclass(frozen=True)
class PageContext:
    """Values that every page uses."""

    base: str
    """The path prefix of all pages of the dashboard, without a trailing slash."""
    session: Session | None


@cache
def load_static_file(name: str) -> tuple[str, bytes]:
    """Returns the content type and the content of a static file. Raises KeyError if the file does not exist."""
    kind, template_names = STATIC_FILES[name]
    environment = jinja_templates.get_environment()
    return kind, "\n".join(environment.get_template(one).render() for one in template_names).encode()


@cache
def _static_url(name: str) -> str:
    """Returns a URL with a content hash, so that browsers can cache the file forever."""
    return f"/static/{name}?v={hashlib.sha256(load_static_file(name)[1]).hexdigest()[:16]}"


def render_run_list(
    context: PageContext, run_list: RunListPage, components: tuple[ComponentHealth, ...]
) -> str:
    return render_page(
        "run_list",
        context,
        run_list=run_list,
        statistics_rows=_statistics_rows(run_list.statistics),
        components=components,
        states=STATES,
        verdicts=VERDICTS,
        label_verdict=label_verdict,
        page_links=_page_links(run_list),
        format_dollars=_format_dollars,
    )


@dataclass(frozen=True)
class RunControls:
    """What a person may do with a run, and what they have asked for."""

    may_stop: bool
    may_retry: bool
    is_stopping: bool
    is_outside_queue: bool
    """A process on the server's machine works on the run, but no worker."""
    requested: str
    """The button that the person pressed last; empty if the person pressed none."""
    may_decide: bool
    """The person may approve or reject the call that waits."""
    may_write: bool
    """The person may write to the agent."""
    thread_url: str
    """URL of the issue or pull request. GitHub redirects from the URL of an issue to a pull request."""
    mention: str
    """The name with which people mention the bot in comments."""
    nonce: str
    """Different on every page, so that pressing a button twice sends only one command."""


def render_run(
    context: PageContext,
    summary: RunSummary,
    view: RunPageView,
    controls: RunControls,
    shown_at: datetime,
) -> str:
    """Renders the page of one run."""
    return render_page(
        "run",
        context,
        run=summary,
        path=f"/runs/{quote(summary.run, safe='')}",
        view=view,
        title=view.content.title,
        header=Markup(view.content.header),
        sidebar=Markup(view.content.sidebar),
        main=Markup(view.content.main),
        controls=controls,
        shown_at=shown_at,
    )


def render_login(
    context: PageContext, back_to: str, *, github: bool, operator: bool, problem: LoginProblem | None
) -> str:
    return render_page(
        "login", context, back_to=back_to, has_github=github, has_operator=operator, problem=problem
    )


def render_rejection(context: PageContext, reason: RejectionReason) -> str:
    return render_page("rejection", context, reason=reason)


def _statistics_rows(statistics: RunStatistics) -> list[tuple[str, str, str]]:
    """Returns the statistics as rows with name, figure and explanation."""
    success_rate, usd_per_merged = statistics.success_rate, statistics.usd_per_merged
    is_cost_known = not statistics.unpriced
    unpriced = f"; {statistics.unpriced:,} at an unknown price, which does not count toward dollar limits"
    return [
        ("Runs", f"{statistics.runs:,}", "that match the filter"),
        ("Pull requests", f"{len(statistics.pulls):,}", "opened or updated"),
        ("Merged", f"{statistics.merged:,}", f"{statistics.closed:,} closed without a merge"),
        ("Zero-touch", f"{statistics.zero_touch:,}", "merged without commits by other people"),
        (
            "Cost",
            _format_dollars(statistics.usd, is_cost_known),
            "of these runs" + ("" if is_cost_known else unpriced),
        ),
        (
            "Per merge",
            "–" if usd_per_merged is None else _format_dollars(usd_per_merged, is_cost_known),
            "total cost divided by merged pull requests",
        ),
        (
            "Infrastructure",
            "–" if success_rate is None else f"{100 * success_rate:.1f} %",
            "of finished runs had no server, sandbox or GitHub failure",
        ),
    ]


def _format_dollars(usd: float, is_cost_known: bool) -> str:
    """Formats a cost. If `is_cost_known` is False, shows the amount as a lower bound."""
    places = 4 if 0 < usd < 0.01 else 2 if usd < 1000 else 0
    known = f"${round_usd(usd, places, is_minimum=not is_cost_known):,}"
    if is_cost_known:
        return known
    return f"≥ {known}" if usd else "unknown"


def _page_links(run_list: RunListPage) -> dict[str, str]:
    """Returns the labels and URLs of the links to the previous and the next page."""
    page, query = run_list.run_filter.page, run_list.run_filter.query
    neighbors = {"Newer": page - 1, "Older": page + 1}
    existing = {name: number for name, number in neighbors.items() if 1 <= number <= run_list.page_count}
    return {name: f"/?{urlencode({**query, 'page': str(number)})}" for name, number in existing.items()}


def render_page(template: str, context: PageContext, **values: object) -> str:
    """Renders a template of the dashboard. Replaces invisible characters and control characters with visible
    ones.
    """
    page = jinja_templates.get_environment().get_template(f"dashboard/{template}.html.j2").render(
        base=context.base,
        session=context.session,
        stylesheet=_static_url("style.css"),
        viewer_script=_static_url("viewer.js"),
        dashboard_script=_static_url("dashboard.js"),
        welcome_script=_static_url("welcome.js"),
        failure_labels=FAILURE_LABELS,
        label_state=label_state,
        describe_wait=_describe_wait,
        describe_retry=lambda tries: f"failed {'once' if tries == 1 else f'{tries} times'} and waits for its next try",
        format_age=_format_age,
        format_time=_format_time,
        format_duration=filters.format_duration,
        quote_url=lambda value: quote(value, safe=""),
        **values,
    )  # fmt: skip
    return escape_invisible(page)


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _describe_wait(wait: GitHubWait) -> str:
    """Describes a run's wait for GitHub. Times are in UTC, with the date if it is not today's date."""
    today = datetime.now(UTC).date()
    since, next_try = (
        f"{time:%H:%M}" if time.date() == today else f"{time:%Y-%m-%d %H:%M}"
        for time in (wait.since.astimezone(UTC), wait.next_try.astimezone(UTC))
    )
    return f"waits for GitHub since {since} UTC; next try {next_try}"


def _format_age(seconds: float) -> str:
    return filters.format_duration(max(0.0, datetime.now(UTC).timestamp() - seconds))
