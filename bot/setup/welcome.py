"""What is left to do once the App is made, for the browser that made it, checked anew each time it is looked at."""

import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from bot.errors import QueueDown
from bot.glance import Glance
from bot.page.overview import newest
from bot.page.shown import Around
from bot.redis.lookout import Lookout
from bot.redis.presence import Presence
from bot.redis.queue import ArqQueue
from bot.redis.runs import Runs
from bot.setup import shown
from bot.setup.code import Visitor
from bot.setup.github import AsApp
from bot.setup.images import Images
from bot.setup.kept import OwnApp
from bot.setup.shown import Step
from bot.setup.site import COOKIE, guarded, static_file
from bot.webhooks.receiver import App
from resolver.errors import ForgeError
from resolver.settings.settings import Settings

PATH = "/welcome"
ANSWERED = frozenset({"delivered", "commented", "asked"})
PING_SECONDS = 15.0  # after which the webhook's first delivery is asked for once more


class Welcome:
    """The page, for one browser and as long as it is known."""

    def __init__(
        self,
        settings: Settings,
        app: OwnApp,
        visitor: Visitor,
        presence: Presence,
        runs: Runs,
        queue: ArqQueue,
        lookout: Lookout,
        deliveries: Mapping[tuple[str, str], int],
        images: Images,
    ) -> None:
        """`deliveries`: those that came since this process began, by what became of them; `images`: made meanwhile."""
        self._since = time.time()
        self._settings = settings
        self._app = app
        self._visitor = visitor
        self._presence = presence
        self._runs = runs
        self._queue = queue
        self._lookout = lookout
        self._deliveries = deliveries
        self._images = images
        self._pinged = float("-inf")
        self._last = ""
        self._as_app = AsApp(str(app.id), app.private_key, app.place.github_api_url, settings.ca_bundle)

    async def page(self, request: Request) -> Response:
        """What is done and what is not; others, whom GitHub sends here when they install the App, see the runs."""
        if not self._visitor.knows(request.cookies.get(COOKIE, "")):
            return RedirectResponse(f"{self._base(request)}/", 303)
        if request.query_params:  # GitHub adds what was installed
            return RedirectResponse(f"{self._base(request)}{PATH}", 303)
        steps = await self._installed(), await self._heard(), await self._worked(), await self._first()
        return HTMLResponse(shown.welcome(Around(self._base(request), None), steps, self._settings))

    def _base(self, request: Request) -> str:
        public = urlsplit(self._settings.public_url or "")
        return public.path if public.netloc == request.headers.get("host") else ""

    async def _installed(self) -> Step:
        link = self._app.installing
        try:
            homes = await self._as_app.installations()
        except ForgeError as exc:
            return Step("install", False, why=f"Whether it is, GitHub does not say now: {exc}")
        owners = ", ".join(home.account.login for home in homes)
        return Step("install", bool(homes), fact=owners, link=link)

    async def _heard(self) -> Step:
        if self._app.webhook_secret is None:
            return await self._looked()
        became = {how for (_, how), count in self._deliveries.items() if count}
        if became & {"pong", "stored"}:
            return Step("hear", True)
        where = f"{self._app.public_url}/webhook"
        if "forged" in became:
            return Step("unsigned", False, fact=where)
        return Step("hear", False, fact=where, why=await self._ask_for_ping())

    async def _looked(self) -> Step:
        try:
            trouble, seen = await self._lookout.trouble(), await self._lookout.seen()
        except QueueDown as exc:
            return Step("look", False, why=str(exc))
        if trouble is None:
            last = seen.pop("", None)
            places = "1 repository" if len(seen) == 1 else f"{len(seen)} repositories"
            return Step("look", True, fact=f"last at {last:%H:%M:%S} UTC, in {places}" if last else "")
        return Step("look", False, fact=f"{trouble.since:%H:%M} UTC", why=trouble.reason)

    async def _ask_for_ping(self) -> str:
        """Why nothing came, in GitHub's words; it tells a new webhook that it is one before we know its secret."""
        if time.monotonic() - self._pinged >= PING_SECONDS:
            self._pinged = time.monotonic()
            try:
                attempts = await self._as_app.attempts()
                if ping := next((one for one in attempts if one.event == "ping"), None):
                    # 503: we ourselves, who did not know the secret yet.
                    self._last = "" if ping.status_code == HTTPStatus.SERVICE_UNAVAILABLE else ping.status
                    await self._as_app.ask_again(ping)
            except ForgeError as exc:
                self._last = str(exc)
        return self._last

    async def _worked(self) -> Step:
        try:
            workers = await self._presence.workers()
        except QueueDown as exc:
            return Step("worker", False, why=str(exc))
        return Step(
            "worker", workers > 0, fact=f"{workers} with {self._settings.model}", why=self._images.said
        )

    async def _first(self) -> Step:
        try:
            run = first_run(await newest(self._runs, self._queue), self._since)
        except QueueDown as exc:
            return Step("first", False, fact=self._settings.label, why=str(exc))
        return Step("first", run is not None and run.state in ANSWERED, fact=self._settings.label, run=run)


def first_run(newest_first: Sequence[Glance], since: float) -> Glance | None:
    """The run to tell of: what was answered first, else what began last, of those that began `since` then."""
    new = [run for run in newest_first if run.began >= since]
    answered = [run for run in new if run.state in ANSWERED]
    return answered[-1] if answered else new[0] if new else None


def welcome(page: Welcome) -> Mapping[str, App]:
    """The page and the files that it loads, by path."""
    routes = [
        Route(PATH, guarded(page.page), methods=["GET"]),
        Route("/static/{name}", guarded(static_file), methods=["GET"]),
    ]
    app: App = Starlette(routes=routes)  # type: ignore[assignment]
    return {PATH: app, "/static": app}
