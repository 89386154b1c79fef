"""The setup wizard: enter a code, choose a model, create an App. It ends when the App's key is saved."""

import asyncio
import hmac
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from fastapi import APIRouter, BackgroundTasks, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse

from patchwright.bot.dashboard.asgi import SECURITY_HEADERS, SecurityHeadersMiddleware, serve_static
from patchwright.bot.dashboard.views import PageContext, render_page
from patchwright.bot.dashboard.web_requests import (
    READ_METHODS,
    REJECTION_STATUS,
    VisitorRejected,
    read_same_site_form,
)
from patchwright.bot.setup.app_api import (
    APP_PERMISSIONS,
    build_manifest,
    exchange_manifest_code,
    manifest_form_url,
)
from patchwright.bot.setup.app_form import (
    URL_PATTERN,
    AppForm,
    check_app_form,
    parse_app_form,
    parse_model_form,
)
from patchwright.bot.setup.credential_key import key_settings
from patchwright.bot.setup.credential_store import (
    ModelConnection,
    RegisteredApp,
    StoredSetup,
    check_writable,
    save,
)
from patchwright.bot.setup.image_preparation import ImagePreparation
from patchwright.bot.setup.model_probe import TIMEOUT_SECONDS, ModelProbeResult
from patchwright.bot.setup.setup_code import VALID_SECONDS, SetupCode, SetupSession
from patchwright.bot.setup.setup_views import SetupProblem, StepFailure, probe_failure
from patchwright.resolver.errors import Forbidden, ForgeError, NotFound, SettingsError
from patchwright.resolver.settings.server_settings import is_loopback
from patchwright.resolver.settings.settings import Settings

log = logging.getLogger(__name__)

SESSION_COOKIE = "patchwright-setup"
HANDOVER_DELAY_SECONDS = 0.3
WRONG_CODE_DELAY_SECONDS = 1.0  # delay of the response to a wrong code
REMEMBERED_FIELDS = (
    *("model", "base_url", "server_url", "organization", "public_url", "reach"),
    *("confirmed_organization", "confirmed_url"),
)
"""The form fields whose values are kept for the next visit of the page. No field in this list is secret."""
"""Maps a problem to the status of the response. The status for other problems is 400."""

_CODE_LOG_EVENTS = {
    "right": (logging.INFO, "setup code entered"),
    "wrong": (logging.WARNING, "wrong setup code"),
    "expired": (logging.WARNING, "expired setup code"),
}

ProbeModel = Callable[[ModelConnection], Awaitable[ModelProbeResult]]


class SetupWizard:
    """The state of the setup while its pages are served."""

    def __init__(
        self,
        settings: Settings,
        stored: StoredSetup,
        code: SetupCode,
        session: SetupSession,
        probe_model: ProbeModel,
        image_preparation: ImagePreparation,
    ) -> None:
        """`stored` contains what an earlier, incomplete setup saved. `image_preparation` is the state of the
        image build.
        """
        self._settings = settings
        self._stored = stored
        self._code = code
        self._session = session
        self._probe_model = probe_model
        self._images = image_preparation
        self._public_url = settings.public_url or ""
        self._tested_model: ModelConnection | None = None
        """The model that the person may use although its test failed or its price is unknown."""
        self._form_values: dict[str, str] = {}
        self._pending_app: tuple[str, AppForm] | None = None
        """The `state` parameter that was sent to GitHub, and the App that is to be created."""
        self._unsaved_app: RegisteredApp | None = None
        self._lock = asyncio.Lock()
        self.done = asyncio.Event()
        """This event is set after everything is saved and the last response is sent."""

    # --- the steps ------------------------------------------------------------------------------------------

    async def show_step(self, request: Request) -> Response:
        """Shows the next step."""
        if not self._has_session(request):
            return self._render(request, "setup_code")
        return self._render_next_step(request)

    async def submit_code(self, request: Request) -> Response:
        """Checks the setup code."""
        form = await read_same_site_form(request, self._public_url)
        result = self._code.check(form.get("code", ""))
        log.log(*_CODE_LOG_EVENTS[result], extra={"from": request.client.host if request.client else ""})
        if result != "right":
            await asyncio.sleep(WRONG_CODE_DELAY_SECONDS)
            failure = StepFailure("wrong_code" if result == "wrong" else "expired_code")
            return self._render(request, "setup_code", failure)
        response = self._redirect(request, "/setup")
        response.set_cookie(
            SESSION_COOKIE, self._session.start(), max_age=round(VALID_SECONDS), path="/",
            httponly=True, samesite="lax", secure=_browser_origin(request).startswith("https:"),
        )  # fmt: skip
        return response

    async def submit_model(self, request: Request) -> Response:
        """Tests and saves the model."""
        form = await self._read_form(request)
        anyway = self._tested_model if form.get("anyway") == "yes" else None
        chosen = anyway or parse_model_form(form)
        if not isinstance(chosen, ModelConnection):
            return self._render_next_step(request, StepFailure(chosen))
        if anyway is None:
            probe = await self._probe_model(chosen)
            self._tested_model = None if probe.is_access_denied else chosen
            if probe.error is not None:
                return self._render_next_step(request, probe_failure(probe))
            if not probe.has_known_price:
                return self._render(request, "setup_unpriced", model=chosen.model, settings=self._settings)
        if (error := await self._save(self._stored.model_copy(update={"model": chosen}))) is not None:
            return self._render_next_step(request, StepFailure("data_not_writable", error))
        return self._redirect(request, "/setup")

    async def submit_app(self, request: Request) -> Response:
        """Checks the description of the App and shows the page that posts its manifest to GitHub."""
        form = await self._read_form(request)
        app_form = parse_app_form(form, self._settings, _browser_origin(request))
        if not isinstance(app_form, AppForm):
            return self._render_next_step(request, StepFailure(app_form))
        origin, ca_bundle = _browser_origin(request), self._settings.ca_bundle
        if failure := await check_app_form(app_form, form, origin, ca_bundle):
            return self._render_next_step(request, failure)
        try:  # This is checked before GitHub creates the App. Otherwise, the App's key could be lost.
            await asyncio.to_thread(check_writable, self._settings.data, key_settings(self._settings))
        except (OSError, SettingsError) as exc:
            return self._render_next_step(
                request, StepFailure("data_not_writable", _describe_save_error(exc))
            )
        state = secrets.token_urlsafe(32)
        self._pending_app = state, app_form
        base_url = f"{_browser_origin(request)}{self._base_path(request)}"
        manifest = build_manifest(base_url, app_form.public_url, webhook=app_form.webhook)
        form_url = manifest_form_url(app_form.server, app_form.organization, state)
        github = urlsplit(app_form.server.github_server_url)
        policy = SECURITY_HEADERS["content-security-policy"].replace(
            "form-action 'self'", f"form-action 'self' {github.scheme}://{github.netloc}"
        )
        response = self._render(
            request,
            "setup_manifest",
            form_url=form_url,
            manifest=json.dumps(manifest),
            host=github.netloc,
            permissions={name.replace("_", " "): level for name, level in APP_PERMISSIONS.items()},
            has_webhook="hook_attributes" in manifest,
        )
        response.headers["content-security-policy"] = policy
        return response

    async def handle_manifest_callback(self, request: Request, state: str = "", code: str = "") -> Response:
        """Exchanges the one-time code in the URL of GitHub's redirect for the App's credentials."""
        self._require_session(request)
        async with self._lock:
            if self._stored.app is not None:
                return self._redirect(request, "/welcome")
            if self._pending_app is None or not code or not _is_equal(state, self._pending_app[0]):
                return self._render_next_step(request, StepFailure("state_mismatch"))
            app_form = self._pending_app[1]
            try:
                app = await exchange_manifest_code(
                    code, app_form.server, app_form.public_url, self._settings.ca_bundle
                )
            except (NotFound, Forbidden):
                self._pending_app = None
                return self._render_next_step(request, StepFailure("manifest_code_expired"))
            except ForgeError as exc:  # the code may still work at the next attempt
                retry_url = f"{self._base_path(request)}/setup/callback?{request.url.query}"
                return self._render_next_step(request, StepFailure("github_unavailable", str(exc), retry_url))
            self._pending_app = None
            return await self._save_app(request, app)

    async def retry_save(self, request: Request) -> Response:
        """Tries again to save the App's credentials."""
        await self._read_form(request)
        async with self._lock:
            return (
                self._redirect(request, "/setup")
                if self._unsaved_app is None
                else await self._save_app(request, self._unsaved_app)
            )

    async def hand_over(self, request: Request) -> Response:
        """Closes the connection. The browser then connects to the server that starts after the setup."""
        if self._stored.app is None:
            return self._redirect(request, "/setup")
        await asyncio.sleep(HANDOVER_DELAY_SECONDS)
        response = self._redirect(request, "/welcome")
        response.headers["connection"] = "close"
        return response

    async def _save_app(self, request: Request, app: RegisteredApp) -> Response:
        self._unsaved_app = app
        if (error := await self._save(self._stored.model_copy(update={"app": app}))) is not None:
            return self._render_next_step(request, StepFailure("app_not_saved", error))
        response = self._redirect(request, "/welcome")
        response.headers["connection"] = "close"
        response.background = BackgroundTasks()
        response.background.add_task(self._set_done)
        return response

    async def _set_done(self) -> None:
        self.done.set()

    async def _save(self, stored: StoredSetup) -> str | None:
        """Saves the setup. Returns None, or the error message if the setup could not be saved."""
        try:
            await asyncio.to_thread(save, self._settings.data, stored, key_settings(self._settings))
        except (OSError, SettingsError) as exc:
            return _describe_save_error(exc)
        self._stored = stored
        log.info(
            "setup saved",
            extra={"model": stored.model and stored.model.model, "app": stored.app and stored.app.slug},
        )
        return None

    # --- sessions and pages ---------------------------------------------------------------------------------

    def _has_session(self, request: Request) -> bool:
        return self._session.is_valid(request.cookies.get(SESSION_COOKIE, ""))

    def _require_session(self, request: Request) -> None:
        if not self._has_session(request):
            raise SetupSessionRequired

    async def _read_form(self, request: Request) -> dict[str, str]:
        """Reads a form. Raises SetupSessionRequired if the setup code was not entered in this browser."""
        self._require_session(request)
        form = {
            key: value.strip()
            for key, value in (await read_same_site_form(request, self._public_url)).items()
        }
        if remembered := {key: form[key] for key in REMEMBERED_FIELDS if key in form}:
            self._form_values = remembered
        return form

    def _render_next_step(self, request: Request, failure: StepFailure | None = None) -> Response:
        if self._settings.model is None and self._stored.model is None:
            values = {"base_url": self._settings.model_base_url or "", **self._form_values}
            return self._render(
                request,
                "setup_model",
                failure,
                values=values,
                data=self._settings.data,
                image_preparation=self._images,
                timeout_seconds=round(TIMEOUT_SECONDS),
            )
        address = self._settings.public_url or _browser_origin(request)
        unreachable = is_loopback(address)
        values = {
            "server_url": self._settings.github_server_url,
            "public_url": address,
            "reach": "poll" if self._settings.poll or unreachable else "webhook",
            **self._form_values,
        }
        return self._render(
            request,
            "setup_app",
            failure,
            values=values,
            unsaved_app=self._unsaved_app,
            image_preparation=self._images,
            is_local=unreachable and values["public_url"] == address,
        )

    def _redirect(self, request: Request, path: str) -> Response:
        return RedirectResponse(f"{self._base_path(request)}{path}", HTTPStatus.SEE_OTHER)

    def _render(
        self, request: Request, template: str, failure: StepFailure | None = None, **values: object
    ) -> HTMLResponse:
        context = PageContext(self._base_path(request), None)
        page = render_page(template, context, failure=failure, **values)
        return HTMLResponse(page, failure.status if failure else 200)

    def _base_path(self, request: Request) -> str:
        """Returns the public URL's path prefix, or "" if the browser opened this page on another host."""
        public = urlsplit(self._public_url)
        return public.path if public.netloc == request.headers.get("host") else ""

    # --- the application ------------------------------------------------------------------------------------

    def create_app(self) -> FastAPI:
        """Returns the setup application, which also has health endpoints. It responds with "not ready" to
        webhook deliveries that arrive during the setup.
        """
        app = FastAPI(openapi_url=None)
        app.add_middleware(SecurityHeadersMiddleware)
        app.add_exception_handler(SetupSessionRequired, self._handle_rejection)
        app.add_exception_handler(VisitorRejected, self._handle_rejection)
        app.api_route("/", methods=READ_METHODS)(self._redirect_to_setup)
        router = self._build_router()
        app.include_router(router)
        if base := urlsplit(self._public_url).path:
            app.include_router(router, prefix=base)
        return app

    def _build_router(self) -> APIRouter:
        router = APIRouter()
        pages: dict[str, Callable[..., Awaitable[Response]]] = {
            "/setup": self.show_step,
            "/setup/callback": self.handle_manifest_callback,
            "/welcome": self.hand_over,
            "/static/{name}": serve_static,
            "/healthz": _healthz,
            "/readyz": _not_ready,
        }
        for path, page in pages.items():
            router.api_route(path, methods=READ_METHODS)(page)
        router.post("/setup/code")(self.submit_code)
        router.post("/setup/model")(self.submit_model)
        router.post("/setup/app")(self.submit_app)
        router.post("/setup/retry")(self.retry_save)
        router.post("/webhook")(_not_ready)
        return router

    async def _redirect_to_setup(self, request: Request) -> Response:
        return self._redirect(request, "/setup")

    async def _handle_rejection(self, request: Request, error: Exception) -> Response:
        problem: SetupProblem = "cross_site" if isinstance(error, VisitorRejected) else "login_required"
        response = self._render(request, "setup_code", StepFailure(problem))
        if isinstance(error, VisitorRejected):
            response.status_code = REJECTION_STATUS[error.reason]
        return response


class SetupSessionRequired(Exception):
    """Raised if the setup code was not entered in this browser, or its session has expired."""


async def _healthz() -> Response:
    return JSONResponse({"setup": True})


async def _not_ready() -> Response:
    return JSONResponse({"status": "not set up"}, HTTPStatus.SERVICE_UNAVAILABLE)


def _browser_origin(request: Request) -> str:
    """Returns this server's origin as the browser sees it. Its scheme is https if a proxy terminates TLS,
    although the server itself receives http.
    """
    origin = request.headers.get("origin", "")
    return (
        origin
        if URL_PATTERN.fullmatch(origin)
        else f"{request.url.scheme}://{request.headers.get('host', '')}"
    )


def _is_equal(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), known.encode())


def _describe_save_error(error: OSError | SettingsError) -> str:
    if isinstance(error, SettingsError):
        return str(error)
    return f"{error.filename or 'the directory'}: {error.strerror or error}"
