"""Signs people in with GitHub's OAuth web flow, and checks which repositories they may read and write."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import httpx
from pydantic import BaseModel, ValidationError

from patchwright.bot.errors import ForgeUnavailable
from patchwright.bot.github.api_errors import error_from_response
from patchwright.bot.github.tls import create_ssl_context
from patchwright.bot.redis.sessions import DashboardUser, pkce_challenge, pkce_verifier
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import Forbidden, NotFound, Unauthorized

TIMEOUT_SECONDS = 10.0  # seconds for one response; short, because a person is waiting
MAX_RESPONSE_BYTES = 1 << 20  # bytes of one response; the response for a repository has 10 kB

AccessLevel = Literal["none", "read", "write"]


@dataclass(frozen=True)
class OAuthConfig:
    """URLs of a GitHub instance and the OAuth credentials of our App."""

    server_url: str
    api_url: str
    client_id: str
    client_secret: str
    ca_bundle: Path | None = None


class _Token(BaseModel):
    access_token: str


class _Account(BaseModel):
    id: int
    login: str


class _Permissions(BaseModel):
    push: bool = False


class _Repository(BaseModel):
    permissions: _Permissions = _Permissions()


class GitHubOAuth:
    """Sends requests to GitHub on behalf of the person who signed in.

    Methods may raise Unauthorized if the code or the token is no longer valid, and ForgeError if GitHub
    returns no usable response.
    """

    def __init__(self, config: OAuthConfig) -> None:
        self._config = config
        self._http = httpx.AsyncClient(
            verify=create_ssl_context(config.ca_bundle), timeout=TIMEOUT_SECONDS, max_redirects=2
        )

    def authorization_url(self, state: str, browser_secret: str, redirect_uri: str) -> str:
        """Returns the GitHub URL for signing in. GitHub then redirects the browser to `redirect_uri` with a
        code.
        """
        query = {
            "client_id": self._config.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": pkce_challenge(browser_secret),
            "code_challenge_method": "S256",
        }
        return f"{self._config.server_url}/login/oauth/authorize?{urlencode(query)}"

    async def exchange_code(self, code: str, browser_secret: str, redirect_uri: str) -> str:
        """Exchanges an authorization code for an access token. A code works once."""
        form = {
            "client_id": self._config.client_id,
            "client_secret": self._config.client_secret,
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": pkce_verifier(browser_secret),
        }
        url = f"{self._config.server_url}/login/oauth/access_token"
        response = await self._send("POST", url, {"accept": "application/json"}, data=form)
        try:
            return _Token.model_validate_json(response.content).access_token
        except ValidationError as exc:  # GitHub reports these errors with status 200
            raise Unauthorized("GitHub rejected the authorization code") from exc

    async def get_person(self, token: str) -> DashboardUser:
        """Returns the account that a token belongs to."""
        account = _parse_response(_Account, await self._get("user", token))
        return DashboardUser(login=account.login, id=account.id)

    async def get_access_level(self, repo: Repo, token: str) -> AccessLevel:
        """Returns the token owner's access level to a repository; "none" if GitHub does not show the repository
        to that owner.
        """
        try:
            response = await self._get(f"repos/{repo.owner}/{repo.name}", token)
        except (NotFound, Forbidden):
            return "none"
        return "write" if _parse_response(_Repository, response).permissions.push else "read"

    async def revoke_token(self, token: str) -> None:
        """Revokes an access token.

        Source: docs.github.com/rest/apps/oauth-applications#delete-an-app-token
        """
        credentials = base64.b64encode(
            f"{self._config.client_id}:{self._config.client_secret}".encode()
        ).decode()
        headers = {"authorization": f"Basic {credentials}", "accept": "application/vnd.github+json"}
        url = f"{self._config.api_url}/applications/{self._config.client_id}/token"
        await self._send("DELETE", url, headers, json={"access_token": token})

    async def close(self) -> None:
        await self._http.aclose()

    async def _get(self, path: str, token: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}", "accept": "application/vnd.github+json"}
        return await self._send("GET", f"{self._config.api_url}/{path}", headers)

    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        data: Mapping[str, str] | None = None,
        json: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        operation = f"{method} {url.partition('?')[0]}"
        try:
            request = self._http.build_request(method, url, headers=dict(headers), data=data, json=json)
            # GitHub redirects requests for renamed repositories. Redirects of other methods are not followed,
            # because these requests contain the client secret.
            response = await self._http.send(request, stream=True, follow_redirects=method == "GET")
            try:
                body = b""
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MAX_RESPONSE_BYTES:
                        raise ForgeUnavailable(f"response from GitHub too large: {operation}")
            finally:
                await response.aclose()
        except (httpx.HTTPError, ValueError) as exc:
            raise ForgeUnavailable(f"no response from GitHub: {operation}: {type(exc).__name__}") from exc
        complete = httpx.Response(
            response.status_code, headers=_drop_transfer_headers(response.headers), content=body
        )
        if not complete.is_success:
            raise error_from_response(complete, operation)
        return complete


def _drop_transfer_headers(headers: httpx.Headers) -> dict[str, str]:
    """Removes the headers that describe how the body was transferred. They no longer apply, because httpx has
    decoded the body.
    """
    transfer_headers = ("content-encoding", "content-length", "transfer-encoding")
    return {name: value for name, value in headers.items() if name not in transfer_headers}


def _parse_response(response_type: type[Any], response: httpx.Response) -> Any:
    try:
        return response_type.model_validate_json(response.content)
    except ValidationError as exc:
        raise ForgeUnavailable("GitHub returned an unexpected response") from exc
