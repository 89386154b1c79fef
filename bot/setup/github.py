"""What GitHub is asked for an App of ours, and what it answers."""

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import httpx
import jwt
from pydantic import Field, TypeAdapter, ValidationError

from bot.errors import Unanswered
from bot.github.answers import Answer
from bot.github.meanings import meaning
from bot.github.trust import trust
from bot.setup.kept import OwnApp, Place
from bot.webhooks.delivery import EVENTS
from resolver.errors import SettingsError

T = TypeVar("T")

SECONDS = 20.0  # for GitHub's answer
MOST_BYTES = 1 << 20

PERMISSIONS = {
    "metadata": "read",
    "contents": "write",
    "issues": "write",
    "pull_requests": "write",
    "checks": "write",
    "actions": "read",
    "statuses": "read",
}
"""The least that everything takes (bot/github/rest.py, bot/ci). Not `workflows`: no patch may change what CI runs."""
EVENTS_ASKED = EVENTS - {"installation", "installation_repositories"}
"""Without those of which every App is told, and which none may ask for."""


class Account(Answer):
    login: str = ""


class Home(Answer):
    """One of the App's installations."""

    id: int
    account: Account = Account()
    html_url: str = ""
    permissions: dict[str, str] = Field(default_factory=dict)
    suspended_at: str | None = None


class Attempt(Answer):
    """One time that GitHub tried to deliver something."""

    id: int
    event: str
    status: str
    status_code: int

    @property
    def fine(self) -> bool:
        return 200 <= self.status_code < 300


class _Converted(Answer):
    id: int
    slug: str = Field(min_length=1)
    html_url: str = Field(pattern=r"^https?://[^\s<>\"']+$")
    client_id: str
    client_secret: str
    pem: str = Field(pattern=r"^-----BEGIN [A-Z ]*PRIVATE KEY-----")
    webhook_secret: str | None = None


def manifest(base: str, public_url: str, *, webhook: bool) -> dict[str, object]:
    """What our App is to be. `base`: where this browser reaches us; `webhook`: GitHub does, at `public_url`.

    Source: docs.github.com/apps/sharing-github-apps/registering-a-github-app-from-a-manifest
    """
    made: dict[str, object] = {
        # GitHub wants a name that nobody else has; on its page another can be written.
        "name": f"patchwright-{secrets.token_hex(3)}",
        "url": public_url,
        "description": "Label an issue, get a tested pull request.",
        "public": False,
        "redirect_url": f"{base}/setup/made",
        "setup_url": f"{base}/welcome",
        "callback_urls": [f"{public_url}/login/callback"],
        "default_permissions": PERMISSIONS,
    }
    if webhook:
        made["hook_attributes"] = {"url": f"{public_url}/webhook", "active": True}
        made["default_events"] = sorted(EVENTS_ASKED)
    return made


def form_address(place: Place, organization: str, state: str) -> str:
    """Where the manifest is sent by the browser; organization "": the App is the person's own."""
    whose = f"/organizations/{quote(organization, safe='')}" if organization else ""
    return f"{place.github_server_url}{whose}/settings/apps/new?state={quote(state, safe='')}"


async def convert(code: str, place: Place, public_url: str, ca_bundle: Path | None) -> OwnApp:
    """The App that the code is worth, once.

    Raises NotFound when the code is not known, used or older than an hour, and ForgeError when no answer is usable.
    Source: docs.github.com/rest/apps/apps#create-a-github-app-from-a-manifest
    """
    url = f"{place.github_api_url}/app-manifests/{quote(code, safe='')}/conversions"
    answer = await asked("POST", url, {}, ca_bundle)
    told = read(_Converted, answer)
    return OwnApp(
        id=told.id,
        slug=told.slug,
        html_url=told.html_url.rstrip("/"),
        client_id=told.client_id,
        client_secret=told.client_secret,
        private_key=told.pem,
        webhook_secret=told.webhook_secret,
        place=place,
        public_url=public_url,
    )


class AsApp:
    """GitHub asked in the name of the App itself, once and without patience: by who waits before a screen.

    Every method may raise ForgeError, and SettingsError where the key is none.
    """

    def __init__(self, app_id: str, private_key: str, api_url: str, ca_bundle: Path | None) -> None:
        self._app_id = app_id
        self._key = private_key
        self._api_url = api_url.rstrip("/")
        self._ca_bundle = ca_bundle

    async def ask(self, method: str, path: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {self._jwt()}"}
        return await asked(method, f"{self._api_url}/{path}", headers, self._ca_bundle)

    async def installations(self) -> list[Home]:
        """Where it is installed; the first hundred."""
        return read(list[Home], await self.ask("GET", "app/installations?per_page=100"))

    async def attempts(self) -> list[Attempt]:
        """The last deliveries of its webhook, the newest first."""
        return read(list[Attempt], await self.ask("GET", "app/hook/deliveries?per_page=30"))

    async def ask_again(self, attempt: Attempt) -> None:
        """Have that sent once more."""
        await self.ask("POST", f"app/hook/deliveries/{attempt.id}/attempts")

    def _jwt(self) -> str:
        # A minute of difference between two clocks is usual: docs.github.com, "Generating a JSON Web Token".
        now = int(time.time())
        claims = {"iat": now - 60, "exp": now + 480, "iss": self._app_id}
        try:
            return jwt.encode(claims, self._key, algorithm="RS256")
        except (ValueError, TypeError, jwt.PyJWTError):  # without its cause, which may quote the key
            raise SettingsError("the App's private key is no PEM private key") from None


async def asked(method: str, url: str, headers: Mapping[str, str], ca_bundle: Path | None) -> httpx.Response:
    """GitHub's answer, which is a good one. Raises ForgeError."""
    body, sent = b"", {"accept": "application/vnd.github+json", "user-agent": "patchwright", **headers}
    try:
        async with (
            httpx.AsyncClient(verify=trust(ca_bundle), timeout=SECONDS) as http,
            http.stream(method, url, headers=sent) as answer,
        ):
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > MOST_BYTES:
                    raise Unanswered("the answer is larger than any of GitHub's")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as exc:
        raise Unanswered(f"no answer from {urlsplit(url).netloc} ({type(exc).__name__})") from exc
    told = {name: value for name, value in answer.headers.items() if name in ("date", "link")}
    whole = httpx.Response(answer.status_code, content=body, headers=told)
    if not whole.is_success:
        raise meaning(whole, f"{method} {urlsplit(url).path}")
    return whole


def read(shape: type[T], answer: httpx.Response) -> T:
    """Its body in this shape. Raises Unanswered."""
    try:
        return TypeAdapter(shape).validate_json(answer.content)
    except ValidationError:  # without its cause, which may quote secrets
        raise Unanswered("what answers there does not answer as GitHub does") from None
