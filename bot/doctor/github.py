"""GitHub: whether it knows us, what it lets us do and where, and whether its deliveries arrive."""

import asyncio
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx
from pydantic import Field

from bot.doctor.examine import Check, Finding, failed, ok, warning
from bot.github.answers import Answer, TokenAnswer
from bot.github.rest import PERMISSIONS as NEEDED
from bot.setup.github import EVENTS_ASKED, PERMISSIONS, AsApp, Attempt, Home, asked, read
from resolver.errors import ForgeError, NotFound, Unauthorized
from resolver.settings.settings import Settings

APP, CLOCK, WEBHOOK, URL = "GitHub App", "clock", "webhook", "public address"
MOST_APART = 30.0  # seconds: GitHub takes no signature of ours from more than a minute ahead
PING_SECONDS = 15.0  # for GitHub to send it again: it waits 10 s for our answer
FIREWALL = (
    "Let GitHub's addresses through to it (api.github.com/meta names them), or use patchwright serve --poll."
)


class _App(Answer):
    slug: str = ""
    html_url: str = ""
    permissions: dict[str, str] = Field(default_factory=dict)
    events: tuple[str, ...] = ()


class _Config(Answer):
    url: str | None = None


class _User(Answer):
    login: str


class _Permissions(Answer):
    push: bool = False


class _Repository(Answer):
    permissions: _Permissions = _Permissions()


def checks(settings: Settings, private_key: str | None) -> list[Check]:
    """`private_key`: of the App; None: there is none."""
    network = "Check that this machine reaches GitHub (GITHUB_API_URL, HTTPS_PROXY, PATCHWRIGHT_CA_BUNDLE)."
    if settings.app_id and private_key:
        app = AsApp(settings.app_id, private_key, settings.github_api_url, settings.ca_bundle)
        found = [
            Check(APP, lambda: _app(app), network),
            Check("installations", lambda: _installations(app), network, seconds=60),
            Check(WEBHOOK, lambda: _webhook(app, settings), network, seconds=60),
        ]
    elif settings.github_token:
        token = settings.github_token.get_secret_value()
        found = [Check("token", lambda: _token(settings, token), network, seconds=60)]
    else:
        found = [Check(APP, _nobody, "")]
    if settings.public_url and not settings.poll:
        found.append(
            Check(URL, lambda: _reached(settings), "See that the server runs, and what is before it.")
        )
    return found


async def _nobody() -> list[Finding]:
    mend = "Start patchwright serve and open the page that it names, or set PATCHWRIGHT_APP_ID and its private key."
    return [failed(APP, "nothing says yet who this server is on GitHub", mend)]


# --- the App ------------------------------------------------------------------------------------------------


async def _app(app: AsApp) -> list[Finding]:
    try:
        answer = await app.ask("GET", "app")
    except Unauthorized as exc:
        mend = "Check PATCHWRIGHT_APP_ID and its key, and this machine's clock; a new key is made on the App's page."
        return [failed(APP, f"GitHub does not know us: {exc}", mend)]
    known = read(_App, answer)
    found = [ok(APP, f"GitHub knows us as {known.slug}"), _clock(answer)]
    return found + _permissions(known.permissions, f"the App {known.slug}", known.html_url)


def _clock(answer: httpx.Response) -> Finding:
    try:
        theirs = parsedate_to_datetime(answer.headers.get("date", ""))
    except ValueError:
        return warning(CLOCK, "GitHub did not say what time it is", "Compare it by hand.")
    apart = (datetime.now(UTC) - theirs).total_seconds()
    seen = f"{abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} GitHub's"
    if abs(apart) > MOST_APART:
        return failed(
            CLOCK, seen, "Set it, and keep it by NTP: GitHub refuses what is signed at another time."
        )
    return ok(CLOCK, seen)


def _permissions(granted: dict[str, str], whose: str, where: str) -> list[Finding]:
    lacking = {
        name: level
        for name, level in PERMISSIONS.items()
        if granted.get(name) not in (level, "write", "admin")
    }
    if not lacking:
        return [ok("permissions", f"{whose} has all that it needs")]
    seen = f"{whose} lacks " + ", ".join(f"{name}: {level}" for name, level in lacking.items())
    mend = f"Grant it at {where}."
    return [(failed if NEEDED.keys() & lacking.keys() else warning)("permissions", seen, mend)]


async def _installations(app: AsApp) -> list[Finding]:
    name, homes = "installations", await app.installations()
    if not homes:
        return [
            failed(name, "the App is nowhere installed", "Install it: the link stands on the App's page.")
        ]
    several = await asyncio.gather(*(_installation(app, home) for home in homes))
    return [finding for found in several for finding in found]


async def _installation(app: AsApp, home: Home) -> list[Finding]:
    name, whose = "installation", f"{home.account.login} ({home.id})"
    if home.suspended_at is not None:
        return [
            failed(name, f"{whose} is suspended since {home.suspended_at}", f"Undo it at {home.html_url}.")
        ]
    try:
        made = read(TokenAnswer, await app.ask("POST", f"app/installations/{home.id}/access_tokens"))
    except ForgeError as exc:
        return [failed(name, f"{whose}: no token: {exc}", f"See {home.html_url}.")]
    left = (made.expires_at - datetime.now(UTC)).total_seconds() / 60
    minted = ok(name, f"{whose}: a token was minted, good for {left:.0f} minutes")
    return [
        minted,
        *_permissions(home.permissions, f"the installation for {home.account.login}", home.html_url),
    ]


# --- the webhook --------------------------------------------------------------------------------------------


async def _webhook(app: AsApp, settings: Settings) -> list[Finding]:
    if settings.poll:
        return [ok(WEBHOOK, "none is needed: the server looks at GitHub every 30 s")]
    if settings.webhook_secret is None:
        mend = "Set PATCHWRIGHT_WEBHOOK_SECRET to the secret of the App's webhook, or use patchwright serve --poll."
        return [failed(WEBHOOK, "its secret is not set", mend)]
    found = [*await _address(app, settings), *await _events(app)]
    attempts = await app.attempts()
    if (ping := next((one for one in attempts if one.event == "ping"), None)) is not None:
        return [*found, await _pinged(app, ping)]
    if not attempts:
        mend = "Label an issue, then look again; the App's page under Advanced shows what GitHub has sent."
        return [*found, warning(WEBHOOK, "GitHub has delivered nothing in the last three days", mend)]
    return [*found, _judged(attempts[0], "the last delivery")]


async def _address(app: AsApp, settings: Settings) -> list[Finding]:
    url = read(_Config, await app.ask("GET", "app/hook/config")).url
    wanted = f"{settings.public_url}/webhook" if settings.public_url else None
    if not url:
        return [
            failed(
                WEBHOOK, "the App has none", f"Set its address on the App's page: {wanted or '.../webhook'}."
            )
        ]
    if not urlsplit(url).path.endswith("/webhook"):
        return [
            failed(
                WEBHOOK, f"GitHub calls {url}", "Its path has to end in /webhook: set it on the App's page."
            )
        ]
    if wanted and url != wanted:
        return [
            warning(WEBHOOK, f"GitHub calls {url}, not {wanted}", "Correct it, or PATCHWRIGHT_PUBLIC_URL.")
        ]
    return []


async def _events(app: AsApp) -> list[Finding]:
    has = read(_App, await app.ask("GET", "app")).events
    if lacking := sorted(EVENTS_ASKED - set(has)):
        mend = "Subscribe to them on the App's page, under Permissions & events."
        return [warning("events", f"the App is not told of {', '.join(lacking)}", mend)]
    return []


async def _pinged(app: AsApp, last: Attempt) -> Finding:
    """Have GitHub send its greeting once more: that changes nothing, and shows the whole way."""
    await app.ask_again(last)
    until = time.monotonic() + PING_SECONDS
    while time.monotonic() < until:
        await asyncio.sleep(0.5)
        attempts = await app.attempts()
        newest = next((one for one in attempts if one.event == "ping"), last)
        if newest.id != last.id:
            return _judged(newest, "a ping that was asked for just now")
    return _judged(last, "the last ping")


def _judged(attempt: Attempt, what: str) -> Finding:
    if attempt.fine:
        return ok(WEBHOOK, f"GitHub reaches it, and {what} was verified")
    seen = f"{what} came to nothing: {attempt.status_code} {attempt.status}".rstrip()
    match attempt.status_code:
        case 401:
            mend = "The secret on the App's page is not the one set here: set both to the same."
        case 404 | 405:
            mend = (
                "Something else answers at that address: it has to lead to patchwright serve, path /webhook."
            )
        case 503:
            mend = "The server answers, but cannot store: see redis above."
        case _:
            mend = FIREWALL
    return failed(WEBHOOK, seen, mend)


async def _reached(settings: Settings) -> list[Finding]:
    """From here; GitHub's own view is that of the webhook."""
    await asked("GET", f"{settings.public_url}/healthz", {}, settings.ca_bundle)
    return [ok(URL, f"{settings.public_url} answers")]


# --- a token ------------------------------------------------------------------------------------------------


async def _token(settings: Settings, token: str) -> list[Finding]:
    headers, api = {"authorization": f"Bearer {token}"}, settings.github_api_url.rstrip("/")
    try:
        answer = await asked("GET", f"{api}/user", headers, settings.ca_bundle)
    except Unauthorized as exc:
        return [failed("token", f"GitHub does not know it: {exc}", "Make a new one and set GITHUB_TOKEN.")]
    found = [ok("token", f"it is {read(_User, answer).login}'s"), _clock(answer)]
    if not settings.repositories:
        mend = "Set PATCHWRIGHT_REPOSITORIES, so that what no delivery told is found too."
        return [*found, warning("repositories", "none is named", mend)]
    places = (_place(api, name, headers, settings) for name in settings.repositories)
    return [*found, *await asyncio.gather(*places)]


async def _place(api: str, name: str, headers: dict[str, str], settings: Settings) -> Finding:
    try:
        seen = read(_Repository, await asked("GET", f"{api}/repos/{name}", headers, settings.ca_bundle))
    except NotFound:
        return failed("repositories", f"the token does not see {name}", "Correct the name, or let it in.")
    if not seen.permissions.push:
        return failed(
            "repositories", f"the token may not write to {name}", "Let it write contents, issues and pulls."
        )
    return ok("repositories", f"{name} can be written to")
