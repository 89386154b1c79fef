"""Checks for GitHub: credentials, clock, permissions, installations, and webhook deliveries."""

import asyncio
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit

import httpx
from pydantic import Field

from patchwright.bot.doctor.runner import CheckResult, DoctorCheck, failed, is_server, ok, warning
from patchwright.bot.github.repositories import InstallationRepositoriesResponse
from patchwright.bot.github.rest import REQUIRED_PERMISSIONS
from patchwright.bot.github.schemas import GitHubResponse, InstallationTokenResponse
from patchwright.bot.setup.app_api import (
    APP_PERMISSIONS,
    SUBSCRIBED_EVENTS,
    AppClient,
    AppInstallation,
    DeliveryAttempt,
    parse_response,
    send_request,
)
from patchwright.bot.webhooks.triggers import label_command
from patchwright.resolver.errors import ForgeError, NotFound, Unauthorized
from patchwright.resolver.settings.server_settings import is_loopback
from patchwright.resolver.settings.settings import Settings

APP, CLOCK, WEBHOOK, URL = "GitHub App", "clock", "webhook", "public URL"
MAX_CLOCK_SKEW_SECONDS = 30.0  # GitHub rejects JWTs whose time of issue is more than a minute in the future
MAX_LABEL_CHECKS = 20  # repositories of an installation in which the label is looked up
# how long to wait for the result of a redelivery; GitHub waits 10 s for a response
PING_TIMEOUT_SECONDS = 15.0
FIREWALL_FIX = (
    "Open the firewall for GitHub (api.github.com/meta lists its addresses), or use patchwright serve --poll."
)


class _App(GitHubResponse):
    slug: str = ""
    html_url: str = ""
    permissions: dict[str, str] = Field(default_factory=dict)
    events: tuple[str, ...] = ()


class _WebhookConfig(GitHubResponse):
    url: str | None = None


class _User(GitHubResponse):
    login: str


class _Permissions(GitHubResponse):
    push: bool = False


class _Repository(GitHubResponse):
    permissions: _Permissions = _Permissions()


def build_checks(settings: Settings, private_key: str | None) -> list[DoctorCheck]:
    """Returns the checks of GitHub. `private_key` is the App's key; None if no key is configured."""
    network = (
        "Check that this machine reaches GitHub (GITHUB_SERVER_URL, HTTPS_PROXY, PATCHWRIGHT_CA_BUNDLE)."
    )
    if settings.app_id and private_key:
        app = AppClient(settings.app_id, private_key, settings.github_api_url, settings.ca_bundle)
        found = [
            DoctorCheck(APP, lambda: _check_app(app), network),
            DoctorCheck(
                "installations", lambda: _check_installations(app, settings), network, timeout_seconds=60
            ),
            DoctorCheck(WEBHOOK, lambda: _check_webhook(app, settings), network, timeout_seconds=60),
        ]
    elif settings.github_token:
        token = settings.github_token.get_secret_value()
        found = [DoctorCheck("token", lambda: _check_token(settings, token), network, timeout_seconds=60)]
    else:
        found = [DoctorCheck(APP, lambda: _report_no_identity(settings), "")]
    # Behind Redis of another machine or container, the server's loopback address is not this one's.
    is_elsewhere = settings.redis_url is not None and is_loopback(settings.public_url or "")
    if settings.public_url and not (settings.poll and is_elsewhere):
        found.append(
            DoctorCheck(
                URL,
                lambda: _check_public_url(settings),
                "Check that the server runs, and check the proxy in front of it.",
            )
        )
    return found


async def _report_no_identity(settings: Settings) -> list[CheckResult]:
    """Returns a failure if a server is configured. On other machines, `resolve --repo` may be all that is needed."""
    detail = "no GitHub App or token is configured"
    fix = "Start patchwright serve and open the URL that it prints, or set PATCHWRIGHT_APP_ID and its private key."
    if is_server(settings):
        return [failed(APP, detail, fix)]
    detail += "; only patchwright resolve --repo works without one"
    return [warning(APP, detail, f"For issues on GitHub, set GITHUB_TOKEN. For a server: {fix}")]


# --- the App ------------------------------------------------------------------------------------------------


async def _check_app(app: AppClient) -> list[CheckResult]:
    try:
        response = await app.request("GET", "app")
    except Unauthorized as exc:
        fix = "Check PATCHWRIGHT_APP_ID, the key and this machine's clock, or generate a new key on the App's page."
        return [failed(APP, f"GitHub rejected the App's credentials: {exc}", fix)]
    app_info = parse_response(_App, response)
    found = [ok(APP, f"authenticated as {app_info.slug}"), _check_clock(response)]
    return found + _check_permissions(app_info.permissions, f"the App {app_info.slug}", app_info.html_url)


def _check_clock(response: httpx.Response) -> CheckResult:
    try:
        github_time = parsedate_to_datetime(response.headers.get("date", ""))
    except ValueError:
        return warning(CLOCK, "GitHub's response has no date", "Check the clock by hand.")
    skew = (datetime.now(UTC) - github_time).total_seconds()
    detail = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} GitHub's clock"
    if abs(skew) > MAX_CLOCK_SKEW_SECONDS:
        return failed(
            CLOCK, detail, "Set the clock and use NTP: GitHub rejects requests signed at a wrong time."
        )
    return ok(CLOCK, detail)


def _check_permissions(granted: dict[str, str], subject: str, url: str) -> list[CheckResult]:
    missing = {
        name: level
        for name, level in APP_PERMISSIONS.items()
        if granted.get(name) not in (level, "write", "admin")
    }
    if not missing:
        return [ok("permissions", f"{subject} has all required permissions")]
    detail = f"{subject} lacks " + ", ".join(f"{name}: {level}" for name, level in missing.items())
    fix = f"Grant the permissions at {url}."
    return [(failed if REQUIRED_PERMISSIONS.keys() & missing.keys() else warning)("permissions", detail, fix)]


async def _check_installations(app: AppClient, settings: Settings) -> list[CheckResult]:
    name, installations = "installations", await app.list_installations()
    if not installations:
        return [failed(name, "the App is not installed anywhere", "Install the App from its page on GitHub.")]
    results = await asyncio.gather(*(_check_installation(app, one, settings) for one in installations))
    return [result for group in results for result in group]


async def _check_installation(
    app: AppClient, installation: AppInstallation, settings: Settings
) -> list[CheckResult]:
    name, account = "installation", f"{installation.account.login} ({installation.id})"
    if installation.suspended_at is not None:
        return [
            failed(
                name,
                f"{account} has been suspended since {installation.suspended_at}",
                f"Unsuspend it at {installation.html_url}.",
            )
        ]
    try:
        token = parse_response(
            InstallationTokenResponse,
            await app.request("POST", f"app/installations/{installation.id}/access_tokens"),
        )
    except ForgeError as exc:
        return [failed(name, f"{account}: cannot get a token: {exc}", f"See {installation.html_url}.")]
    minutes_left = (token.expires_at - datetime.now(UTC)).total_seconds() / 60
    token_result = ok(
        name, f"{account}: got an installation token that is valid for {minutes_left:.0f} minutes"
    )
    headers, api = {"authorization": f"Bearer {token.token}"}, settings.github_api_url
    listed = await send_request(
        "GET", f"{api}/installation/repositories?per_page={MAX_LABEL_CHECKS}", headers, settings.ca_bundle
    )
    repositories = parse_response(InstallationRepositoriesResponse, listed).repositories
    checks = (_check_label(api, str(one.full_name), headers, settings) for one in repositories)
    return [
        token_result,
        *_check_permissions(
            installation.permissions,
            f"the installation for {installation.account.login}",
            installation.html_url,
        ),
        *(result for results in await asyncio.gather(*checks) for result in results),
    ]


async def _check_label(api: str, name: str, headers: dict[str, str], settings: Settings) -> list[CheckResult]:
    """Returns a warning if the repository lacks the label that starts a run."""
    label = quote(settings.label, safe="")
    try:
        await send_request("GET", f"{api}/repos/{name}/labels/{label}", headers, settings.ca_bundle)
    except NotFound:
        detail = f"{name} has no label {settings.label}"
        return [warning("label", detail, f"Run: {label_command(settings.label, name)}")]
    return []


# --- the webhook --------------------------------------------------------------------------------------------


async def _check_webhook(app: AppClient, settings: Settings) -> list[CheckResult]:
    if settings.poll:
        return [ok(WEBHOOK, "not needed: the server polls GitHub every 30 seconds")]
    if settings.webhook_secret is None:
        fix = "Set PATCHWRIGHT_WEBHOOK_SECRET to the secret of the App's webhook, or use patchwright serve --poll."
        return [failed(WEBHOOK, "the webhook secret is not set", fix)]
    found = [*await _check_webhook_url(app, settings), *await _check_events(app)]
    attempts = await app.list_delivery_attempts()
    if (ping := next((one for one in attempts if one.event == "ping"), None)) is not None:
        return [*found, await _check_ping(app, ping)]
    if not attempts:
        fix = "Label an issue, then check again. The App's page lists GitHub's deliveries under Advanced."
        return [*found, warning(WEBHOOK, "no deliveries from GitHub in the last three days", fix)]
    return [*found, _attempt_result(attempts[0], "the last delivery")]


async def _check_webhook_url(app: AppClient, settings: Settings) -> list[CheckResult]:
    url = parse_response(_WebhookConfig, await app.request("GET", "app/hook/config")).url
    expected = f"{settings.public_url}/webhook" if settings.public_url else None
    if not url:
        return [
            failed(
                WEBHOOK,
                "the App has no webhook",
                f"Set the webhook's URL on the App's page: {expected or '.../webhook'}.",
            )
        ]
    if not urlsplit(url).path.endswith("/webhook"):
        return [
            failed(
                WEBHOOK, f"GitHub sends events to {url}", "Set a URL that ends in /webhook on the App's page."
            )
        ]
    if is_loopback(url) and not is_loopback(settings.github_api_url):
        return [
            failed(
                WEBHOOK,
                f"GitHub cannot reach {url}, because it is a loopback address",
                "Set a URL that GitHub can reach on the App's page, or use patchwright serve --poll.",
            )
        ]
    if expected and url != expected:
        return [
            warning(
                WEBHOOK,
                f"GitHub sends events to {url}, not {expected}",
                "Correct the URL on the App's page, or PATCHWRIGHT_PUBLIC_URL.",
            )
        ]
    return []


async def _check_events(app: AppClient) -> list[CheckResult]:
    subscribed = parse_response(_App, await app.request("GET", "app")).events
    if missing := sorted(SUBSCRIBED_EVENTS - set(subscribed)):
        fix = "Subscribe to these events on the App's page, under Permissions & events."
        return [warning("events", f"the App is not subscribed to {', '.join(missing)}", fix)]
    return []


async def _check_ping(app: AppClient, last: DeliveryAttempt) -> CheckResult:
    """Asks GitHub to send the webhook's ping delivery again. This tests the complete path of a delivery, and
    changes nothing.
    """
    await app.redeliver(last)
    deadline = time.monotonic() + PING_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        await asyncio.sleep(0.5)
        attempts = await app.list_delivery_attempts()
        newest = next((one for one in attempts if one.event == "ping"), last)
        if newest.id != last.id:
            return _attempt_result(newest, "a new ping")
    return _attempt_result(last, "the last ping")


def _attempt_result(attempt: DeliveryAttempt, label: str) -> CheckResult:
    if attempt.is_successful:
        return ok(WEBHOOK, f"GitHub reaches the webhook, and {label} had a valid signature")
    detail = f"{label} failed: {attempt.status_code} {attempt.status}".rstrip()
    match attempt.status_code:
        case 401:
            fix = "The webhook secret on the App's page is not the one configured here. Set both to the same value."
        case 404 | 405:
            fix = "Another server responds at the webhook's URL. The URL must lead to /webhook of patchwright serve."
        case 503:
            fix = "The server responds, but cannot write to Redis: see the redis check."
        case _:
            fix = FIREWALL_FIX
    return failed(WEBHOOK, detail, fix)


async def _check_public_url(settings: Settings) -> list[CheckResult]:
    """Checks that this machine can reach the public URL. Another check tests whether GitHub can reach it.

    A server that polls works without this URL, but people cannot open the dashboard.
    """
    try:
        await send_request("GET", f"{settings.public_url}/healthz", {}, settings.ca_bundle)
    except ForgeError as exc:
        if not settings.poll:
            raise
        fix = "Check that the server runs, and check the host and the port in PATCHWRIGHT_PUBLIC_URL."
        return [warning(URL, f"{settings.public_url} does not respond: {exc}".rstrip("."), fix)]
    return [ok(URL, f"{settings.public_url} responds")]


# --- a token ------------------------------------------------------------------------------------------------


async def _check_token(settings: Settings, token: str) -> list[CheckResult]:
    headers, api = {"authorization": f"Bearer {token}"}, settings.github_api_url
    try:
        response = await send_request("GET", f"{api}/user", headers, settings.ca_bundle)
    except Unauthorized as exc:
        return [
            failed("token", f"GitHub rejected the token: {exc}", "Create a new token and set GITHUB_TOKEN.")
        ]
    found = [ok("token", f"belongs to {parse_response(_User, response).login}"), _check_clock(response)]
    if not settings.named_repositories:
        fix = "List them in PATCHWRIGHT_ALLOWED_REPOSITORIES as owner/name, so that missed events are found."
        return [*found, warning("repositories", "no repositories are configured", fix)]
    checks = (_check_repository(api, name, headers, settings) for name in settings.named_repositories)
    return [*found, *(result for results in await asyncio.gather(*checks) for result in results)]


async def _check_repository(
    api: str, name: str, headers: dict[str, str], settings: Settings
) -> list[CheckResult]:
    try:
        repository = parse_response(
            _Repository, await send_request("GET", f"{api}/repos/{name}", headers, settings.ca_bundle)
        )
    except NotFound:
        fix = "Correct the repository's name, or give the token access to it."
        return [failed("repositories", f"the token has no access to {name}", fix)]
    if not repository.permissions.push:
        fix = "Give the token write access to contents, issues and pull requests."
        return [failed("repositories", f"the token cannot write to {name}", fix)]
    return [ok("repositories", f"{name} is writable"), *await _check_label(api, name, headers, settings)]
