"""Renders a run's log as one HTML file. The file shows the whole run and loads no other files. Code in the
log is never executed.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC

from patchwright.resolver.activity.finish_checks import last_finish, list_points_to_check
from patchwright.resolver.activity.summary import count_tool_calls
from patchwright.resolver.descriptions import label_verdict, name_thread
from patchwright.resolver.domain import InputRequired, Published, Rejected, Reported, RunId, Usage, Verdict
from patchwright.resolver.events import Trajectory
from patchwright.resolver.masking import mask_trajectory
from patchwright.resolver.rendering import filters, jinja_templates
from patchwright.resolver.run_calls import latest_plan
from patchwright.resolver.run_events import RunConfigured
from patchwright.resolver.run_results import TestRun
from patchwright.resolver.run_task import is_question
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.text.untrusted import escape_invisible
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.resolver.viewer.blocks import (
    ChecklistBlock,
    DiffBlock,
    ImageCollection,
    TextBlock,
    build_code_block,
    build_diff_block,
)
from patchwright.resolver.viewer.changed_tests import (
    MAX_LISTED_TESTS,
    ChangedTest,
    build_remarks,
    list_changed_tests,
)
from patchwright.resolver.viewer.cost_curve import HEIGHT, WIDTH, CostCurve, build_cost_curve
from patchwright.resolver.viewer.labels import KIND_LABELS
from patchwright.resolver.viewer.timeline import RunReader, TimelineItem, build_timeline
from patchwright.runtime.egress_policy import DENIAL_MESSAGES, ConnectionSummary
from patchwright.runtime.output_text import clip as shorten
from patchwright.runtime.output_text import clip_line

MAX_FILE_BYTES = 15_000_000  # bytes of the file
FILE_LIMITS = ((20_000, 4_000), (8_000, 4_000), (3_000, 4_000), (1_000, 4_000), (200, 400))
"""Pairs of limits: the maximum characters of a text, and the maximum number of timeline items. The first pair
that makes the file small enough is used.
"""
MAX_FRAGMENT_LENGTH = 1_500_000
"""Maximum characters of a timeline on a dashboard page, which is rendered while the reader waits."""
FRAGMENT_LIMITS = ((8_000, 3_000), (3_000, 3_000), (1_000, 3_000), (300, 3_000))
"""Limits like those in FILE_LIMITS, for the fragments of the dashboard."""

VERDICT_SYMBOLS = {
    "fixed": "✓",
    "conditional": "✓?",
    "regressed": "✗",
    "unproven": "?",
    "untested": "?",
    "empty": "∅",
}
"""Symbols of verdicts, so that color is not the only sign."""


@dataclass(frozen=True, slots=True)
class RunView:
    """The variables of the viewer's templates."""

    run: str
    title: str
    thread_name: str
    """Repository and number of the issue or pull request."""
    thread_url: str | None
    """URL of the issue or pull request; None if there is no safe link."""
    verdict: Verdict | None
    verdict_symbol: str
    verdict_label: str
    outcome: str
    outcome_url: str | None
    """URL of the outcome, for example the pull request."""
    points_to_check: tuple[str, ...]
    summary: Finish | None
    facts: tuple[tuple[str, str], ...]
    test_runs: tuple[tuple[str, TestRun, TextBlock], ...]
    changed_tests: tuple[ChangedTest, ...]
    unlisted_tests: int
    """Number of changed tests that are not listed."""
    remarks: tuple[str, ...]
    """Sentences about changes to tests, and the opinion of the review model."""
    plan: ChecklistBlock | None
    patch: DiffBlock | None
    cost_curve: CostCurve | None
    connections: tuple[ConnectionSummary, ...]
    tool_counts: tuple[tuple[str, int, int], ...]
    """The name of each tool, the number of its calls, and their percentage of all calls."""
    items: tuple[TimelineItem, ...]


def render_run_html(
    run: RunId, trajectory: Trajectory, read_run: RunReader, secrets: Secrets, *, is_over: bool = False
) -> str:
    """Returns the HTML file, at most MAX_FILE_BYTES of UTF-8. `read_run` returns the logs of subagents, which
    may contain secrets. `is_over` means that no process works on the run.
    """
    masked = mask_trajectory(trajectory, secrets)
    logs: dict[RunId, Trajectory | None] = {}

    def read_masked(delegate: RunId) -> Trajectory | None:
        if delegate not in logs:
            log = read_run(delegate)
            logs[delegate] = log and mask_trajectory(log, secrets)
        return logs[delegate]

    page = ""
    for limit, max_items in FILE_LIMITS:
        images = ImageCollection()
        items = build_timeline(masked, read_masked, images, limit, max_items)
        characters = sum(map(_count_characters, _flatten(items)))
        if (limit, max_items) != FILE_LIMITS[-1] and characters > MAX_FILE_BYTES:
            continue
        view = _build_view(RunId(secrets.mask(run)), masked, items, limit, is_over=is_over)
        page = _render_file(view, images)
        if len(page.encode()) <= MAX_FILE_BYTES:
            break
    return page


def _count_characters(item: TimelineItem) -> int:
    """Returns the number of characters in an item's texts, which its size in the file exceeds."""
    return sum(len(block.text) for block in item.blocks if isinstance(block, TextBlock))


@dataclass(frozen=True, slots=True)
class RunFragments:
    """A run as HTML fragments for the dashboard. Texts from the log are escaped, so they cannot inject markup."""

    title: str
    header: str
    """The page header, with the verdict first."""
    sidebar: str
    """The plan, tool calls, network connections and cost of a live run. Empty for a finished run: its field
    `main` contains these parts.
    """
    main: str
    """All other parts of the page. The timeline comes last."""


def render_fragments(
    run: RunId, trajectory: Trajectory, read_run: RunReader, *, is_live: bool
) -> RunFragments:
    """Renders a run whose secrets are already masked. The timeline is clipped to about MAX_FRAGMENT_LENGTH
    characters.

    `is_live` means that the run is still in progress.
    """
    for limit, max_items in FRAGMENT_LIMITS:
        images = ImageCollection()
        items = build_timeline(trajectory, read_run, images, limit, max_items, is_live=is_live)
        if sum(map(_count_characters, _flatten(items))) <= MAX_FRAGMENT_LENGTH:
            break
    view = _build_view(run, trajectory, items, limit, is_over=not is_live)
    context = _build_context(view, images, is_live=is_live)
    header, sidebar, main = (
        _render(f"viewer/{name}.html.j2", context) for name in ("header", "sidebar", "main")
    )
    return RunFragments(escape_invisible(_get_page_title(view)), header, sidebar if is_live else "", main)


def render_progress(
    run: RunId, trajectory: Trajectory, max_text_length: int, *, is_over: bool
) -> RunFragments:
    """Renders the title, the header and the sidebar of a live run, but not the timeline."""
    view = _build_view(run, trajectory, (), max_text_length, is_over=is_over)
    context = _build_context(view, ImageCollection(), is_live=True)
    header, sidebar = (_render(f"viewer/{name}.html.j2", context) for name in ("header", "sidebar"))
    return RunFragments(escape_invisible(_get_page_title(view)), header, sidebar, "")


def render_items(items: Iterable[TimelineItem], images: ImageCollection) -> dict[str, str]:
    """Returns the HTML of timeline items by element id."""
    context = {"images": images, "format_elapsed": format_elapsed, "format_size": filters.format_size}
    return {
        f"e{item.id}": _render("viewer/timeline_items.html.j2", {**context, "items": (item,)})
        for item in items
    }


def _get_page_title(view: RunView) -> str:
    return f"{view.verdict_label}: {view.title}" if view.verdict else view.title


def _render_file(view: RunView, images: ImageCollection) -> str:
    style, script = (_render(f"viewer/{name}.j2", {}) for name in ("style.css", "script.js"))
    sources = {
        "style": style,
        "script": script,
        # The page's security policy allows only the style and the script with these digests, so injected
        # markup cannot add other styles or scripts.
        "style_digest": _hash_source(style),
        "script_digest": _hash_source(script),
    }
    return _render("viewer/standalone.html.j2", _build_context(view, images, is_live=False) | sources)


def _build_context(view: RunView, images: ImageCollection, *, is_live: bool) -> dict[str, object]:
    """Returns the variables of the templates."""
    used_kinds = {item.kind for item in _flatten(view.items)}
    return {
        "view": view,
        "title": _get_page_title(view),
        "images": images,
        "is_live": is_live,
        "kind_labels": {kind: label for kind, label in KIND_LABELS.items() if is_live or kind in used_kinds},
        "format_elapsed": format_elapsed,
        "format_size": filters.format_size,
        "denial_messages": DENIAL_MESSAGES,
        "width": WIDTH,
        "height": HEIGHT,
    }


def _render(template: str, context: Mapping[str, object]) -> str:
    return escape_invisible(jinja_templates.get_environment().get_template(template).render(context))


def _hash_source(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _flatten(items: tuple[TimelineItem, ...]) -> list[TimelineItem]:
    return [each for item in items for each in (item, *_flatten(item.nested))]


def _build_view(
    run: RunId,
    trajectory: Trajectory,
    items: tuple[TimelineItem, ...],
    max_text_length: int,
    *,
    is_over: bool = False,
) -> RunView:
    """Builds the template variables. `is_over` means that no worker will continue this run."""
    started = trajectory.run_started
    verdict = _get_verdict(trajectory)
    outcome, link = _describe_outcome(trajectory, is_over)
    patch = trajectory.last_checkpoint()
    changes = list_changed_tests(verdict) if verdict else ()
    return RunView(
        run=run,
        title=clip_line(_get_title(trajectory) or run, 250),
        thread_name=name_thread(started) if started else "",
        thread_url=_get_safe_url(started.thread.url) if started else None,
        verdict=verdict,
        verdict_symbol=VERDICT_SYMBOLS[verdict.kind] if verdict else "–" if is_over else "…",
        verdict_label=_label_verdict(trajectory, verdict, is_over),
        outcome=shorten(outcome, max_text_length),
        outcome_url=_get_safe_url(link),
        points_to_check=list_points_to_check(trajectory, verdict, max_text_length),
        summary=last_finish(trajectory),
        facts=tuple(_build_facts(trajectory)),
        test_runs=tuple(_build_test_runs(verdict, max_text_length)),
        changed_tests=changes[:MAX_LISTED_TESTS],
        unlisted_tests=len(changes[MAX_LISTED_TESTS:]),
        remarks=tuple(shorten(each, max_text_length) for each in build_remarks(verdict)) if verdict else (),
        plan=ChecklistBlock(plan) if (plan := latest_plan(trajectory)) else None,
        patch=_build_patch_block(patch.diff, max_text_length) if patch and not patch.is_empty else None,
        cost_curve=build_cost_curve(trajectory),
        connections=trajectory.network_visits(),
        tool_counts=count_tool_calls(trajectory),
        items=items,
    )


def _get_title(trajectory: Trajectory) -> str:
    started, subagent_started = trajectory.run_started, trajectory.subagent_started
    return started.thread.title if started else subagent_started.task if subagent_started else ""


def _get_verdict(trajectory: Trajectory) -> Verdict | None:
    completed = trajectory.job_completed
    if completed and isinstance(completed.outcome, Published | Reported):
        return completed.outcome.verdict
    return trajectory.verdict


def _label_verdict(trajectory: Trajectory, verdict: Verdict | None, is_over: bool) -> str:
    if verdict is None:
        return "explanation" if is_question(trajectory) else "no verdict" if is_over else "no verdict yet"
    return label_verdict(verdict.kind, documentation_only=verdict.documentation_only)


def _describe_outcome(trajectory: Trajectory, is_over: bool) -> tuple[str, str | None]:
    """Returns the outcome of the run in a sentence, and the URL that shows it."""
    match completed.outcome if (completed := trajectory.job_completed) else None:
        case Published(url=url, number=number, draft=draft):
            return f"{'Draft pull' if draft else 'Pull'} request #{number} is open.", url
        case Reported(url=url, reason=reason, branch=branch):
            return reason + (f" The work is kept on the branch {branch}." if branch else ""), url
        case InputRequired(url=url, question=question):
            return f"The agent asked: {question}", url
        case Rejected(explanation=explanation):
            return explanation, None
        case None:
            stopped = trajectory.agent_stopped
            return (stopped.detail if stopped else _describe_incomplete(trajectory, is_over)), None


def _describe_incomplete(trajectory: Trajectory, is_over: bool) -> str:
    if is_over:
        return "The run stopped before it finished."
    return "The run is in progress." if trajectory.entries else "The run has not started."


def _build_facts(trajectory: Trajectory) -> list[tuple[str, str]]:
    usage = trajectory.usage()
    cached = f", {usage.cached_tokens:,} of them cached" if usage.cached_tokens else ""
    cost = _format_cost(usage, trajectory.run_configured)
    facts = [("Cost", cost)] if cost else []
    facts += [
        ("Working time", filters.format_duration(usage.seconds)),
        ("Steps", f"{usage.steps}"),
        ("Tokens", f"{usage.prompt_tokens:,} read{cached}, {usage.completion_tokens:,} written"),
    ]
    if started := trajectory.run_started:
        branch = getattr(started.thread, "head_branch", started.base_branch)  # only of a pull request
        facts += [
            ("Model", started.model),
            ("Sandbox", f"{started.sandbox}, network {started.network}"),
            ("Base", f"{started.base_sha[:12]} on {branch}"),
            ("Requested by", started.job.requester.login if started.job.requester else "the operator"),
        ]
    elif subagent_started := trajectory.subagent_started:
        facts += [("Model", subagent_started.model), ("Requested by", f"the run {subagent_started.parent}")]
    if configured := trajectory.run_configured:
        # Without a known cost, the dollar limit has no effect.
        usd_limit = [] if usage.has_unknown_cost else [f"${configured.usd}"]
        limits = f"{configured.steps} steps", *usd_limit, filters.format_duration(configured.seconds)
        facts += [("Limits", ", ".join(limits)), ("Patchwright", configured.version)]
    if trajectory.entries:
        facts.append(("Started", f"{trajectory.entries[0].timestamp.astimezone(UTC):%Y-%m-%d %H:%M} UTC"))
    return facts


def _format_cost(usage: Usage, configured: RunConfigured | None) -> str:
    """Formats the cost. If a price is unknown, the text also says how this affects the dollar limit."""
    cost = filters.format_usage(usage).removeprefix("cost ")
    if not usage.unpriced or configured is None:
        return cost
    effect = "has no effect" if usage.has_unknown_cost else "covers only known prices"
    return f"{cost}; the limit of ${configured.usd} {effect}"


def _build_test_runs(verdict: Verdict | None, max_text_length: int) -> list[tuple[str, TestRun, TextBlock]]:
    runs = (("Before", verdict.before), ("After", verdict.after)) if verdict else ()
    return [
        (
            label,
            test_run,
            build_code_block(f"Output {label.lower()}", test_run.output, max_text_length, is_folded=True),
        )
        for label, test_run in runs
        if test_run is not None
    ]


def _build_patch_block(content: bytes, max_text_length: int) -> DiffBlock:
    return build_diff_block("The change", content.decode(errors="replace"), 4 * max_text_length)


def _get_safe_url(url: str | None) -> str | None:
    """Returns the URL if its scheme is http or https, else None. A link with another scheme could run code."""
    return url if url and url.startswith(("https://", "http://")) else None


def format_elapsed(seconds: float) -> str:
    """Formats the time since the start: `0:07`, `12:30`, `1:02:03`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
