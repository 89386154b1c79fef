"""The list of runs, a run, its events as they come, and the two buttons."""

import logging
import re
import secrets
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Literal, get_args
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from bot.glance import Glance, of_job, of_record
from bot.page import health, shown
from bot.page.kit import Kit
from bot.page.overview import Unclear, overview, wanted
from bot.page.people import Level
from bot.page.shown import Told
from bot.page.web import Refused, around, own_form, page, redirect
from bot.pressed import EVENT, Pressed
from bot.redis.sessions import Session
from resolver.domain import JobId, Repo, RunId, User
from resolver.errors import ForgeError

log = logging.getLogger(__name__)

EVENTS = "text/event-stream"
MOST_WATCHERS = 500  # browsers that are told of runs at a time
AGAIN_MS = 2_000  # after which a browser whose connection broke asks again
LOOK_SECONDS = 60.0  # how often it is looked whether a watcher may still see the run
_ONCE = re.compile("[0-9a-f]{12}")  # what a page's buttons bring, so that a second press of them is the same


@page
async def listed(request: Request, kit: Kit, session: Session) -> Response:
    """The runs that this person may see."""
    try:
        chosen = wanted(request.query_params.multi_items())
    except Unclear as exc:
        raise Refused("unclear") from exc
    found = await overview(kit.runs, kit.queue, kit.gate, session, chosen)
    return HTMLResponse(shown.listed(around(request), found, await health.parts(kit)))


@page
async def one(request: Request, kit: Kit, session: Session) -> Response:
    """A run."""
    glance, level = await _seen(request, kit, session)
    view = await kit.live.view(glance.run)
    told = request.query_params.get("told")
    page = shown.run(
        around(request),
        glance,
        view,
        may_stop=level == "write" and not view.over,
        may_retry=level == "write" and view.over,
        told="stop" if told == "stop" else "retry" if told == "retry" else None,
        once=secrets.token_hex(6),
        at=datetime.now(UTC),
    )
    return HTMLResponse(page)


async def _seen(request: Request, kit: Kit, session: Session, *, fresh: bool = False) -> tuple[Glance, Level]:
    """The run, and what this person may do with it. Raises Refused: there is none, or none for them."""
    run = RunId(request.path_params["run"])
    glance = await kit.runs.get(run) or await _unlisted(kit, run)
    level = await kit.gate.level(session, glance.repository, fresh=fresh) if glance else "none"
    if glance is None or level == "none":
        raise Refused("not_found")
    return glance, level


async def _unlisted(kit: Kit, run: RunId) -> Glance | None:
    """One that waits, or that the list has lost."""
    if (record := await kit.queue.state(run)) is not None:
        return of_record(record)
    started = await kit.live.started(run)
    return of_job(started.job, datetime.now(UTC), "stopped") if started else None


@page
async def events(request: Request, kit: Kit, session: Session) -> Response:
    """What happens in a run, as it happens."""
    glance, _ = await _seen(request, kit, session)
    last = request.headers.get("last-event-id") or request.query_params.get("after", "-1")
    if not (last == "-1" or (last.isascii() and last.isdecimal() and len(last) < 10)):
        raise Refused("unclear")
    watchers: set[object] = request.app.state.watchers
    if len(watchers) >= MOST_WATCHERS:
        raise Refused("watched_enough")
    if not kit.live.has_room(glance.run):
        raise Refused("crowded")
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    told = _told(kit, session, glance, int(last), watchers)
    return StreamingResponse(told, media_type=EVENTS, headers={"x-accel-buffering": "no"})


async def _told(
    kit: Kit, session: Session, glance: Glance, after: int, watchers: set[object]
) -> AsyncIterator[bytes]:
    me, looked = object(), time.monotonic()
    watchers.add(me)
    try:
        yield f"retry: {AGAIN_MS}\n\n".encode()
        async for event in kit.live.watch(glance.run, after):
            yield event
            if time.monotonic() - looked > LOOK_SECONDS:
                looked = time.monotonic()
                if session.expires < time.time() or not await _may_still(kit, session, glance):
                    return  # the browser asks again, and is turned away
    finally:
        watchers.discard(me)


async def _may_still(kit: Kit, session: Session, glance: Glance) -> bool:
    try:
        return await kit.gate.level(session, glance.repository) != "none"
    except ForgeError:  # also when it knows them no more
        return False


@page
async def press(request: Request, kit: Kit, session: Session) -> Response:
    """A button: what it asks for goes the way of a comment's command, and is judged there once more."""
    verb = request.path_params["verb"]
    if verb not in get_args(Told):
        raise Refused("not_found")
    form = await own_form(request, session)
    glance, level = await _seen(request, kit, session, fresh=True)
    if level != "write":
        raise Refused("not_yours")
    if not _ONCE.fullmatch(once := form.get("once", "")):
        raise Refused("unclear")
    pressed = _pressed(verb, glance, session, once)
    log.info("button pressed", extra={"job": glance.run, "verb": verb, "login": session.person.login})
    await kit.inbox.put(f"button-{pressed.id}", EVENT, pressed.model_dump_json().encode())
    return redirect(kit, f"/runs/{quote(glance.run, safe='')}?told={verb}")


def _pressed(verb: Literal["stop", "retry"], glance: Glance, session: Session, once: str) -> Pressed:
    owner, _, name = glance.repository.partition("/")
    person = session.person
    return Pressed(
        id=JobId(f"{glance.run[:120]}-{verb}-{once}"),
        run=glance.run,
        verb=verb,
        repo=Repo(owner=owner, name=name),
        number=glance.number,
        by=User(id=person.id, login=person.login) if person.id is not None else None,
        at=datetime.now(UTC),
    )


def routes() -> list[Route]:
    """What the site serves of this."""
    return [
        Route("/", listed, methods=["GET"]),
        Route("/runs/{run}", one, methods=["GET"]),
        Route("/runs/{run}/events", events, methods=["GET"]),
        Route("/runs/{run}/{verb}", press, methods=["POST"]),
    ]
