"""Routes for the list of runs, a single run, its live events, and its buttons."""

import logging
import re
import secrets
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse

from patchwright.bot.dashboard import health, views
from patchwright.bot.dashboard.dependencies import DashboardDependencies
from patchwright.bot.dashboard.github_oauth import AccessLevel
from patchwright.bot.dashboard.run_list import InvalidQuery, load_run_list, parse_filter
from patchwright.bot.dashboard.views import CommandVerb
from patchwright.bot.dashboard.web_requests import (
    READ_METHODS,
    Deps,
    SignedIn,
    VisitorRejected,
    page_context,
    read_csrf_form,
    redirect,
)
from patchwright.bot.redis.sessions import Session
from patchwright.bot.run_summary import RunSummary, summarize_job, summarize_record
from patchwright.bot.webhooks.triggers import DASHBOARD_EVENT, TriggerRequest
from patchwright.resolver.domain import Job, JobId, Repo, RunId, User
from patchwright.resolver.errors import ForgeError

log = logging.getLogger(__name__)

EVENT_STREAM_TYPE = "text/event-stream"
MAX_WATCHERS = 500  # maximum number of open event streams
RECONNECT_MS = 2_000  # how long browsers wait before they reconnect
# time between two checks that a person who watches a stream may still see the run
ACCESS_CHECK_SECONDS = 60.0
EVENT_NUMBER = (
    "(-1|[0-9]{1,9})"  # pattern of an event's number; -1 stands for the time before the first event
)
_CALL_CODE = re.compile("[0-9a-f]{8}")
MAX_REASON_CHARS = 1_000  # characters of the reason for a rejection
MAX_MESSAGE_CHARS = 3_000  # characters of a message to the agent
_NONCE = re.compile("[0-9a-f]{12}")  # one per page, so that a button that is pressed twice counts once


async def show_run_list(request: Request, deps: Deps, session: SignedIn) -> Response:
    """Shows the list of runs."""
    try:
        run_filter = parse_filter(request.query_params.multi_items())
    except InvalidQuery as exc:
        raise VisitorRejected("invalid_request") from exc
    page = await load_run_list(deps.runs, deps.queue, deps.access_control, session, run_filter)
    return HTMLResponse(
        views.render_run_list(
            page_context(request), page, await health.check_components(deps, page.model_run)
        )
    )


async def show_run(
    request: Request, run: str, deps: Deps, session: SignedIn, requested: str = ""
) -> Response:
    """Shows one run. `requested` is the button that the person pressed last."""
    summary, level = await _load_run(RunId(run), deps, session)
    view = await deps.live_runs.get_view(summary.run)
    if view.is_over and view.summary is not None and view.summary.seconds > summary.seconds:
        # `patchwright resolve --continue` worked on this run while the server was down.
        summary = view.summary.model_copy(update={"resumed_by": summary.resumed_by})
        await deps.runs.put(summary)
    record = await deps.queue.get_record(summary.working_job)
    is_outside_queue = not view.is_over and (record is None or record.state == "completed")
    is_stop_requested = requested == "stop" or not await deps.queue.should_continue(summary.working_job)
    is_stopping = is_stop_requested and not view.is_over and not is_outside_queue
    page = views.render_run(
        page_context(request),
        summary,
        view,
        views.RunControls(
            may_stop=level == "write" and not view.is_over and not is_stopping and not is_outside_queue,
            may_retry=level == "write" and view.is_over and summary.state != "resumed",
            is_stopping=is_stopping,
            is_outside_queue=is_outside_queue,
            requested=requested,
            may_decide=level == "write"
            and view.waiting is not None
            and summary.state == "input_required"
            and requested not in ("approve", "reject"),
            may_write=level == "write" and summary.state != "resumed" and not is_outside_queue,
            thread_url=f"{deps.github_url}/{summary.repository}/issues/{summary.number}",
            mention=deps.mention,
            nonce=secrets.token_hex(6),
        ),
        shown_at=datetime.now(UTC),
    )
    return HTMLResponse(page)


async def _load_run(
    run: RunId, deps: DashboardDependencies, session: Session, *, bypass_cache: bool = False
) -> tuple[RunSummary, AccessLevel]:
    """Returns the run and the person's access level. Raises VisitorRejected if the run does not exist or the
    person may not see it.
    """
    summary = await deps.runs.get(run)
    record = await deps.queue.get_record(summary.working_job if summary else run)
    if record is not None:
        summary = summary.with_record(record) if summary else summarize_record(record)
    elif summary is None:
        summary = await _find_unlisted(deps, run)
    level = (
        await deps.access_control.get_level(session, summary.repository, bypass_cache=bypass_cache)
        if summary
        else "none"
    )
    if summary is None or level == "none":
        raise VisitorRejected("not_found")
    return summary, level


async def _find_unlisted(deps: DashboardDependencies, run: RunId) -> RunSummary | None:
    """Returns a run that is neither in the index nor in the queue, because Redis lost its entries."""
    started = await deps.live_runs.read_start(run)
    return summarize_job(started.job, datetime.now(UTC), "stopped") if started else None


async def stream_events(
    request: Request,
    run: str,
    deps: Deps,
    session: SignedIn,
    last_event_id: Annotated[str, Header(pattern=f"^({EVENT_NUMBER})?$")] = "",
    after: Annotated[str, Query(pattern=f"^{EVENT_NUMBER}$")] = "-1",
) -> Response:
    """Streams the events of a run that follow an event; browsers that reconnect name the last one that they got."""
    summary, _ = await _load_run(RunId(run), deps, session)
    watchers: set[object] = request.app.state.watchers
    if len(watchers) >= MAX_WATCHERS:
        raise VisitorRejected("too_many_viewers")
    if not deps.live_runs.has_capacity(summary.run):
        raise VisitorRejected("too_many_runs")
    if request.method == "HEAD":
        return Response(media_type=EVENT_STREAM_TYPE)
    events = _event_stream(deps, session, summary, int(last_event_id or after), watchers)
    return StreamingResponse(events, media_type=EVENT_STREAM_TYPE, headers={"x-accel-buffering": "no"})


async def _event_stream(
    deps: DashboardDependencies, session: Session, summary: RunSummary, after: int, watchers: set[object]
) -> AsyncIterator[bytes]:
    watcher, checked_at = object(), time.monotonic()
    watchers.add(watcher)
    try:
        yield f"retry: {RECONNECT_MS}\n\n".encode()
        async for event in deps.live_runs.watch(summary.run, after):
            yield event
            if time.monotonic() - checked_at > ACCESS_CHECK_SECONDS:
                checked_at = time.monotonic()
                if session.expires_at < time.time() or not await _can_still_read(deps, session, summary):
                    return  # the browser reconnects, and that request is rejected
    finally:
        watchers.discard(watcher)


async def _can_still_read(deps: DashboardDependencies, session: Session, summary: RunSummary) -> bool:
    try:
        return await deps.access_control.get_level(session, summary.repository) != "none"
    except ForgeError:  # includes Unauthorized
        return False


async def post_command(
    request: Request, run: str, verb: CommandVerb, deps: Deps, session: SignedIn
) -> Response:
    """Queues a request. The worker checks the person's permission again before it executes the
    command.
    """
    form = await read_csrf_form(request, session)
    summary, level = await _load_run(RunId(run), deps, session, bypass_cache=True)
    if level != "write":
        raise VisitorRejected("write_access_required")
    if not _NONCE.fullmatch(nonce := form.get("nonce", "")):
        raise VisitorRejected("invalid_request")
    command = _build_command(verb, form, deps.mention)
    trigger = _build_request(verb, command, summary, session, nonce)
    log.info("dashboard command", extra={"job": summary.run, "verb": verb, "login": session.user.login})
    await deps.inbox.put(f"dashboard-{trigger.job.id}", DASHBOARD_EVENT, trigger.model_dump_json().encode())
    return redirect(deps, f"/runs/{quote(summary.run, safe='')}?requested={verb}")


def _build_command(verb: CommandVerb, form: dict[str, str], mention: str) -> str:
    """Returns the command as in a comment. A decision names the call that the page showed. A message is the text after
    the mention.
    """
    if verb in ("stop", "retry"):
        return verb
    if verb == "message":
        text = form.get("message", "").replace("\r\n", "\n").strip().removeprefix(mention).strip()
        if not text or len(text) > MAX_MESSAGE_CHARS:
            raise VisitorRejected("invalid_request")
        return text
    if not _CALL_CODE.fullmatch(code := form.get("code", "")):
        raise VisitorRejected("invalid_request")
    detail = form.get("reason", "")[:MAX_REASON_CHARS] if verb == "reject" else ""
    if verb == "approve" and form.get("scope") == "run":
        detail = "all like this"
    return f"{verb} {code} {detail}".strip()


def _build_request(
    verb: CommandVerb, command: str, summary: RunSummary, session: Session, nonce: str
) -> TriggerRequest:
    """Returns a request that works like the same command in a comment. Unless it is a message, it affects only this
    run.
    """
    person = session.user
    job = Job(
        # The nonce differs each time the page is loaded, so that a double click sends only one request.
        id=JobId(f"{summary.run[:120]}-{verb}-{nonce}"),
        repo=Repo.parse(summary.repository),
        number=summary.number,
        # The operator needs no permission.
        requester=User(id=person.id, login=person.login) if person.id is not None else None,
        command=command,
        retry_of=summary.run if verb == "retry" else None,
    )
    # A stop affects the job that works on the run, which another job may have started.
    run = None if verb == "message" else summary.working_job if verb == "stop" else summary.run
    return TriggerRequest(job=job, requested_at=datetime.now(UTC), source="dashboard", run=run)


def build_router() -> APIRouter:
    """Returns the routes for the list of runs, a run's page, its live events, and its buttons."""
    router = APIRouter()
    router.api_route("/", methods=READ_METHODS)(show_run_list)
    router.api_route("/runs/{run}", methods=READ_METHODS)(show_run)
    router.api_route("/runs/{run}/events", methods=READ_METHODS)(stream_events)
    router.post("/runs/{run}/{verb}")(post_command)
    return router
