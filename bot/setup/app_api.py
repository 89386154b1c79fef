"""Sends GitHub API requests to register our App and to check its state during the setup."""

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import httpx
import jwt
from pydantic import Field, TypeAdapter, ValidationError

from patchwright.bot.errors import ForgeUnavailable
from patchwright.bot.github.api_errors import describe_connection_error, error_from_response
from patchwright.bot.github.auth import GitHubServer
from patchwright.bot.github.schemas import GitHubResponse
from patchwright.bot.github.tls import create_ssl_context
from patchwright.bot.setup.credential_store import RegisteredApp
from patchwright.bot.webhooks.delivery import HANDLED_EVENTS
from patchwright.resolver.errors import ForgeError, NotFound, SettingsError

T = TypeVar("T")

TIMEOUT_SECONDS = 20.0  # seconds for one response of GitHub
MAX_RESPONSE_BYTES = 1 << 20

APP_PERMISSIONS = {
    "metadata": "read",
    "contents": "write",
    "issues": "write",
    "pull_requests": "write",
    "checks": "write",
    "actions": "read",
    "statuses": "read",
}
"""The permissions that the App needs for all features (`bot/github/`).

`workflows` is left out, because patches must not change the workflows that CI runs.
"""
SUBSCRIBED_EVENTS = HANDLED_EVENTS - {"installation", "installation_repositories"}
"""The events to which the App subscribes. The manifest must not list the two events about installations,
because GitHub sends them to every App.
"""


class InstallationOwner(GitHubResponse):
    login: str = ""


class AppInstallation(GitHubResponse):
    """An installation of the App."""

    id: int
    account: InstallationOwner = InstallationOwner()
    html_url: str = ""
    permissions: dict[str, str] = Field(default_factory=dict)
    suspended_at: str | None = None


class DeliveryAttempt(GitHubResponse):
    """One attempt by GitHub to deliver an event."""

    id: int
    event: str
    status: str
    status_code: int

    @property
    def is_successful(self) -> bool:
        return 200 <= self.status_code < 300


class _AppOwner(GitHubResponse):
    type: str = "Organization"


class _ManifestConversion(GitHubResponse):
    id: int
    slug: str = Field(min_length=1)
    html_url: str = Field(pattern=r"^https?://[^\s<>\"']+$")
    client_id: str
    client_secret: str
    pem: str = Field(pattern=r"^-----BEGIN [A-Z ]*PRIVATE KEY-----")
    webhook_secret: str | None = None


def build_manifest(base: str, public_url: str, *, webhook: bool) -> dict[str, object]:
    """Returns the manifest of the App.

    `base` is the URL under which the current browser reaches the server. If `webhook` is True, GitHub sends
    events to `public_url`.

    Source: docs.github.com/apps/sharing-github-apps/registering-a-github-app-from-a-manifest
    """
    manifest: dict[str, object] = {
        # An App's name is unique on GitHub. People can change the proposed name on GitHub's page.
        "name": f"patchwright-{secrets.token_hex(3)}",
        "url": public_url,
        "description": "Label an issue, get a tested pull request.",
        "public": False,
        "redirect_url": f"{base}/setup/callback",
        "setup_url": f"{base}/welcome",
        "callback_urls": [f"{public_url}/login/callback"],
        "default_permissions": APP_PERMISSIONS,
    }
    if webhook:
        manifest["hook_attributes"] = {"url": f"{public_url}/webhook", "active": True}
        manifest["default_events"] = sorted(SUBSCRIBED_EVENTS)
    return manifest


def manifest_form_url(server: GitHubServer, organization: str, state: str) -> str:
    """Returns the URL to which the browser posts the manifest.

    If `organization` is "", the App will belong to the account of the person in the browser.
    """
    owner_path = f"/organizations/{quote(organization, safe='')}" if organization else ""
    return f"{server.github_server_url}{owner_path}/settings/apps/new?state={quote(state, safe='')}"


async def check_github_reachable(server: GitHubServer, ca_bundle: Path | None) -> None:
    """Raises ForgeUnavailable if the API of this GitHub instance does not respond. The expected response is 401,
    because there are no credentials yet. A success or 404 comes from another kind of server.
    """
    try:
        await send_request("GET", f"{server.github_api_url}/app", {}, ca_bundle)
    except ForgeUnavailable:
        raise
    except NotFound:
        pass
    except ForgeError:
        return
    raise ForgeUnavailable(
        f"{urlsplit(server.github_api_url).netloc} responds, but not as GitHub's API does."
    )


async def has_organization(server: GitHubServer, name: str, ca_bundle: Path | None) -> bool:
    """Returns False if GitHub has no organization of this name. Returns True if GitHub does not say."""
    try:
        response = await send_request("GET", f"{server.github_api_url}/users/{quote(name)}", {}, ca_bundle)
        return parse_response(_AppOwner, response).type == "Organization"
    except NotFound:
        return False
    except ForgeError:
        return True


async def exchange_manifest_code(
    code: str, server: GitHubServer, public_url: str, ca_bundle: Path | None
) -> RegisteredApp:
    """Exchanges a manifest code for the App's credentials. A code works once.

    Raises NotFound if the code is unknown, used or older than an hour, and ForgeError if GitHub returns no
    usable response. Source: docs.github.com/rest/apps/apps#create-a-github-app-from-a-manifest
    """
    url = f"{server.github_api_url}/app-manifests/{quote(code, safe='')}/conversions"
    response = await send_request("POST", url, {}, ca_bundle)
    created = parse_response(_ManifestConversion, response)
    return RegisteredApp(
        id=created.id,
        slug=created.slug,
        html_url=created.html_url.rstrip("/"),
        client_id=created.client_id,
        client_secret=created.client_secret,
        private_key=created.pem,
        webhook_secret=created.webhook_secret,
        server=server,
        public_url=public_url,
    )


class AppClient:
    """Sends requests as the App itself. Does not retry failed requests, because a person is waiting.

    Methods may raise ForgeError, and SettingsError if the private key is invalid.
    """

    def __init__(self, app_id: str, private_key: str, api_url: str, ca_bundle: Path | None) -> None:
        self._app_id = app_id
        self._key = private_key
        self._api_url = api_url.rstrip("/")
        self._ca_bundle = ca_bundle

    async def request(self, method: str, path: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {self._create_jwt()}"}
        return await send_request(method, f"{self._api_url}/{path}", headers, self._ca_bundle)

    async def list_installations(self) -> list[AppInstallation]:
        """Returns the first hundred installations."""
        return parse_response(
            list[AppInstallation], await self.request("GET", "app/installations?per_page=100")
        )

    async def list_delivery_attempts(self) -> list[DeliveryAttempt]:
        """Returns the latest webhook deliveries, newest first."""
        return parse_response(
            list[DeliveryAttempt], await self.request("GET", "app/hook/deliveries?per_page=30")
        )

    async def redeliver(self, attempt: DeliveryAttempt) -> None:
        """Asks GitHub to send this delivery again."""
        await self.request("POST", f"app/hook/deliveries/{attempt.id}/attempts")

    def _create_jwt(self) -> str:
        # Clocks may differ by a minute. Source: docs.github.com, "Generating a JSON Web Token"
        now = int(time.time())
        claims = {"iat": now - 60, "exp": now + 480, "iss": self._app_id}
        try:
            return jwt.encode(claims, self._key, algorithm="RS256")
        # raised without the cause, whose message may contain the key
        except (ValueError, TypeError, jwt.PyJWTError):
            raise SettingsError("the App's private key is not a PEM private key") from None


async def send_request(
    method: str, url: str, headers: Mapping[str, str], ca_bundle: Path | None
) -> httpx.Response:
    """Sends a request and returns the response. Raises ForgeError if the request fails."""
    body, request_headers = (
        b"",
        {"accept": "application/vnd.github+json", "user-agent": "patchwright", **headers},
    )
    try:
        async with (
            httpx.AsyncClient(verify=create_ssl_context(ca_bundle), timeout=TIMEOUT_SECONDS) as http,
            http.stream(method, url, headers=request_headers) as response,
        ):
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_RESPONSE_BYTES:
                    raise ForgeUnavailable("the response is too large to come from GitHub")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as exc:
        reason = describe_connection_error(exc)
        raise ForgeUnavailable(f"no response from {urlsplit(url).netloc} ({reason})") from exc
    kept_headers = {name: value for name, value in response.headers.items() if name in ("date", "link")}
    complete = httpx.Response(response.status_code, content=body, headers=kept_headers)
    if not complete.is_success:
        raise error_from_response(complete, f"{method} {urlsplit(url).path}")
    return complete


def parse_response(response_type: type[T], response: httpx.Response) -> T:
    """Parses a response body. Raises ForgeUnavailable if the body does not have this type."""
    try:
        return TypeAdapter(response_type).validate_json(response.content)
    except ValidationError:  # raised without its cause, whose message may contain secrets
        raise ForgeUnavailable("the response has an unexpected form") from None
