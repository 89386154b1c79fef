"""What GitHub says of the people who log in through the App: who they are, and what they may read and write."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import httpx
from pydantic import BaseModel, ValidationError

from bot.errors import Unanswered
from bot.github.meanings import meaning
from bot.github.trust import trust
from bot.redis.sessions import Person, challenge, verifier
from resolver.domain import Repo
from resolver.errors import Forbidden, NotFound, Unauthorized

SECONDS = 10.0  # for one answer: a person waits
MOST_BYTES = 1 << 20  # of an answer; a repository's takes 10 kB

Level = Literal["none", "read", "write"]


@dataclass(frozen=True)
class Place:
    """A GitHub, and what our App is there."""

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


class People:
    """One GitHub, asked in the name of whoever has logged in.

    A method may raise Unauthorized (the log-in or the token is good no more) and ForgeError (no usable answer).
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._http = httpx.AsyncClient(verify=trust(place.ca_bundle), timeout=SECONDS, max_redirects=2)

    def address(self, state: str, browser: str, back: str) -> str:
        """Where a browser is sent to log in; GitHub sends it `back`, with a code."""
        query = {
            "client_id": self._place.client_id,
            "redirect_uri": back,
            "state": state,
            "code_challenge": challenge(browser),
            "code_challenge_method": "S256",
        }
        return f"{self._place.server_url}/login/oauth/authorize?{urlencode(query)}"

    async def token(self, code: str, browser: str, back: str) -> str:
        """What the code is worth, once."""
        said = {
            "client_id": self._place.client_id,
            "client_secret": self._place.client_secret,
            "code": code,
            "redirect_uri": back,
            "code_verifier": verifier(browser),
        }
        url = f"{self._place.server_url}/login/oauth/access_token"
        answer = await self._ask("POST", url, {"accept": "application/json"}, data=said)
        try:
            return _Token.model_validate_json(answer.content).access_token
        except ValidationError as exc:  # GitHub says its errors with status 200
            raise Unauthorized("GitHub takes this log-in's code no more") from exc

    async def person(self, token: str) -> Person:
        """Whose token it is."""
        account = _read(_Account, await self._api("user", token))
        return Person(login=account.login, id=account.id)

    async def level(self, repo: Repo, token: str) -> Level:
        """What they may do there; "none" for what there is not, too."""
        try:
            answer = await self._api(f"repos/{repo.owner}/{repo.name}", token)
        except (NotFound, Forbidden):
            return "none"
        return "write" if _read(_Repository, answer).permissions.push else "read"

    async def revoke(self, token: str) -> None:
        """It is good no more.

        Source: docs.github.com/rest/apps/oauth-applications#delete-an-app-token
        """
        us = base64.b64encode(f"{self._place.client_id}:{self._place.client_secret}".encode()).decode()
        headers = {"authorization": f"Basic {us}", "accept": "application/vnd.github+json"}
        url = f"{self._place.api_url}/applications/{self._place.client_id}/token"
        await self._ask("DELETE", url, headers, json={"access_token": token})

    async def close(self) -> None:
        await self._http.aclose()

    async def _api(self, path: str, token: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}", "accept": "application/vnd.github+json"}
        return await self._ask("GET", f"{self._place.api_url}/{path}", headers)

    async def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        data: Mapping[str, str] | None = None,
        json: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        what = f"{method} {url.partition('?')[0]}"
        try:
            request = self._http.build_request(method, url, headers=dict(headers), data=data, json=json)
            # A repository that was renamed is elsewhere; our secret goes nowhere but where it was meant to go.
            answer = await self._http.send(request, stream=True, follow_redirects=method == "GET")
            try:
                body = b""
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > MOST_BYTES:
                        raise Unanswered(f"too large an answer from GitHub: {what}")
            finally:
                await answer.aclose()
        except (httpx.HTTPError, ValueError) as exc:
            raise Unanswered(f"no answer from GitHub: {what}: {type(exc).__name__}") from exc
        whole = httpx.Response(answer.status_code, headers=_plain(answer.headers), content=body)
        if not whole.is_success:
            raise meaning(whole, what)
        return whole


def _plain(headers: httpx.Headers) -> dict[str, str]:
    """Without those that tell how the body travelled: it is read."""
    told = ("content-encoding", "content-length", "transfer-encoding")
    return {name: value for name, value in headers.items() if name not in told}


def _read(shape: type[Any], answer: httpx.Response) -> Any:
    try:
        return shape.model_validate_json(answer.content)
    except ValidationError as exc:
        raise Unanswered("no usable answer from GitHub") from exc
