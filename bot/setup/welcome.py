"""The welcome page shows the steps that remain after the App was created. Only the browser that created the App
can open this page.
"""

import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from patchwright.bot.dashboard.asgi import SecurityHeadersMiddleware, serve_static
from patchwright.bot.dashboard.run_list import list_runs
from patchwright.bot.dashboard.views import PageContext
from patchwright.bot.dashboard.web_requests import READ_METHODS
from patchwright.bot.errors import QueueDown
from patchwright.bot.run_summary import RunSummary
from patchwright.bot.setup import setup_views
from patchwright.bot.setup.app_api import AppClient
from patchwright.bot.setup.credential_store import RegisteredApp
from patchwright.bot.setup.image_preparation import ImagePreparation
from patchwright.bot.setup.setup_code import SetupSession
from patchwright.bot.setup.setup_views import SetupStep
from patchwright.bot.setup.wizard import SESSION_COOKIE
from patchwright.bot.web.redis_stores import RedisStores
from patchwright.bot.webhooks.receiver import AsgiApp
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.settings.settings import Settings

PATH = "/welcome"
ANSWERED_STATES = frozenset({"published", "reported", "input_required"})
PING_INTERVAL_SECONDS = 15.0  # time between two requests to GitHub to send the webhook's first delivery again


class WelcomePage:
    """The welcome page for one browser. The browser can open the page until the setup session expires."""

    def __init__(
        self,
        settings: Settings,
        app: RegisteredApp,
        session: SetupSession,
        stores: RedisStores,
        delivery_counts: Mapping[tuple[str, str], int],
        image_preparation: ImagePreparation,
    ) -> None:
        """`delivery_counts` is the number of deliveries since this process started, by event and result.
        `image_preparation` is the state of the image build.
        """
        self._started_at = time.time()
        self._settings = settings
        self._app = app
        self._session = session
        self._stores = stores
        self._delivery_counts = delivery_counts
        self._images = image_preparation
        self._pinged_at = float("-inf")
        self._last_status = ""
        self._app_client = AppClient(
            str(app.id), app.private_key, app.server.github_api_url, settings.ca_bundle
        )

    async def show(self, request: Request) -> Response:
        """Shows the remaining steps.

        GitHub also sends other people to this page after they install the App. They are redirected to the
        list of runs.
        """
        if not self._session.is_valid(request.cookies.get(SESSION_COOKIE, "")):
            return RedirectResponse(f"{self._base_path(request)}/", 303)
        if request.query_params:  # GitHub adds the id of the installation to the query
            return RedirectResponse(f"{self._base_path(request)}{PATH}", 303)
        steps = (
            await self._installation_step(),
            await self._webhook_step(),
            await self._worker_step(),
            await self._first_issue_step(),
        )
        return HTMLResponse(
            setup_views.render_welcome_page(
                PageContext(self._base_path(request), None), steps, self._settings
            )
        )

    def _base_path(self, request: Request) -> str:
        public = urlsplit(self._settings.public_url or "")
        return public.path if public.netloc == request.headers.get("host") else ""

    async def _installation_step(self) -> SetupStep:
        link = self._app.install_url
        try:
            installations = await self._app_client.list_installations()
        except ForgeError as exc:
            return SetupStep("install", False, error=f"GitHub did not return the installations: {exc}")
        owners = ", ".join(one.account.login for one in installations)
        return SetupStep("install", bool(installations), detail=owners, url=link)

    async def _webhook_step(self) -> SetupStep:
        if self._app.webhook_secret is None:
            return await self._polling_step()
        results = {result for (_, result), count in self._delivery_counts.items() if count}
        if results & {"pong", "stored"}:
            return SetupStep("webhook", True)
        url = f"{self._app.public_url}/webhook"
        if "invalid signature" in results:
            return SetupStep("bad_signature", False, detail=url)
        return SetupStep("webhook", False, detail=url, error=await self._request_ping())

    async def _polling_step(self) -> SetupStep:
        try:
            failure, cursors = (
                await self._stores.leader_lease.fetch_failure(),
                await self._stores.leader_lease.fetch_cursors(),
            )
        except QueueDown as exc:
            return SetupStep("poll", False, error=str(exc))
        if failure is None:
            last = cursors.pop("", None)
            repositories = "1 repository" if len(cursors) == 1 else f"{len(cursors)} repositories"
            return SetupStep(
                "poll", True, detail=f"last poll at {last:%H:%M:%S} UTC, {repositories}" if last else ""
            )
        return SetupStep("poll", False, detail=f"{failure.since:%H:%M} UTC", error=failure.reason)

    async def _request_ping(self) -> str:
        """Asks GitHub to send the ping delivery again, and returns the status of the last attempt.

        The first attempt fails, because GitHub makes it before this server knows the webhook's secret.
        """
        if time.monotonic() - self._pinged_at >= PING_INTERVAL_SECONDS:
            self._pinged_at = time.monotonic()
            try:
                attempts = await self._app_client.list_delivery_attempts()
                if ping := next((one for one in attempts if one.event == "ping"), None):
                    # This server responded with 503, because it did not know the secret yet.
                    self._last_status = (
                        "" if ping.status_code == HTTPStatus.SERVICE_UNAVAILABLE else ping.status
                    )
                    await self._app_client.redeliver(ping)
            except ForgeError as exc:
                self._last_status = str(exc)
        return self._last_status

    async def _worker_step(self) -> SetupStep:
        try:
            workers = await self._stores.heartbeats.count_workers()
        except QueueDown as exc:
            return SetupStep("worker", False, error=str(exc))
        ready = "1 worker is" if workers == 1 else f"{workers} workers are"
        return SetupStep(
            "worker",
            workers > 0,
            detail=f"{ready} ready with {self._settings.model}",
            error=self._images.status,
        )

    async def _first_issue_step(self) -> SetupStep:
        try:
            run = find_first_run(await list_runs(self._stores.runs, self._stores.queue), self._started_at)
        except QueueDown as exc:
            return SetupStep("first_issue", False, detail=self._settings.label, error=str(exc))
        return SetupStep(
            "first_issue",
            run is not None and run.state in ANSWERED_STATES,
            detail=self._settings.label,
            run=run,
        )


def find_first_run(newest_first: Sequence[RunSummary], since: float) -> RunSummary | None:
    """Returns the first run that started after `since` and published changes, reported a result, or asked a
    question. If there is none, returns the latest run after `since`.
    """
    new = [run for run in newest_first if run.started_at >= since]
    answered = [run for run in new if run.state in ANSWERED_STATES]
    return answered[-1] if answered else new[0] if new else None


def create_welcome_apps(page: WelcomePage) -> Mapping[str, AsgiApp]:
    """Returns the welcome page and its static files, by path."""
    app = FastAPI(openapi_url=None)
    app.add_middleware(SecurityHeadersMiddleware)
    app.api_route(PATH, methods=READ_METHODS)(page.show)
    app.api_route("/static/{name}", methods=READ_METHODS)(serve_static)
    return {PATH: app, "/static": app}  # type: ignore[dict-item]
