"""Signs people in through a GitHub App. Implements GitHub's web application flow, including its errors.

Source: docs.github.com, "Generating a user access token for a GitHub App"
"""

import base64
import hashlib
import html
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlencode

from patchwright.demo.github.app_models import GitHubApp, OAuthClient
from patchwright.demo.github.auth import ApiError
from patchwright.demo.github.operations import operation
from patchwright.demo.github.request_context import RequestContext, RestResponse
from patchwright.demo.github.state import GitHubState, Token, User

AUTHORIZE, ACCESS_TOKEN = "/login/oauth/authorize", "/login/oauth/access_token"
CODE_LIFETIME = timedelta(minutes=10)
TOKEN_LIFETIME = timedelta(hours=8)

HttpReply = tuple[int, dict[str, str], bytes]

CONSENT_HTML = """<!doctype html><html lang="en"><title>Authorize</title><main><h1>Authorize {app}</h1>
<form method="post"><button>Authorize {app} as {login}</button></form></main></html>"""


@dataclass(frozen=True)
class _AuthorizationCode:
    client: OAuthClient
    user: User
    redirect: str
    challenge: str
    expires: datetime


class OAuth:
    """Handles requests of browsers and servers below `/login/oauth/`."""

    def __init__(self, state: GitHubState) -> None:
        self._state = state
        self._codes: dict[str, _AuthorizationCode] = {}
        self.signed_in_user: User | None = None
        """The user who is signed in on every browser."""

    def create_client(self, app: GitHubApp, callback: str) -> OAuthClient:
        """Creates an OAuth client for the App."""
        made = OAuthClient(app, callback, f"Iv23{secrets.token_hex(8)}", secrets.token_hex(20))
        self._state.clients[made.id] = made
        return made

    def respond(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, accept: str
    ) -> HttpReply:
        """Handles a request. Returns the status, headers and body of the response."""
        if path == AUTHORIZE and method in ("GET", "POST"):
            return self._authorize(query, is_confirmed=method == "POST")
        if path == ACCESS_TOKEN and method == "POST":
            given = dict(parse_qsl(body.decode(errors="replace")))
            said = (
                json.dumps(self._exchange_code(given))
                if "json" in accept
                else urlencode(self._exchange_code(given))
            )
            return 200, {"content-type": "application/json; charset=utf-8"}, said.encode()
        return 404, {"content-type": "text/plain"}, b"Not Found"

    def _authorize(self, query: Mapping[str, str], *, is_confirmed: bool) -> HttpReply:
        client = self._state.clients.get(query.get("client_id", ""))
        if client is None or self.signed_in_user is None:
            return 404, {"content-type": "text/plain"}, b"Not Found"
        redirect = query.get("redirect_uri", client.callback)
        if not redirect.startswith(client.callback):
            return self._redirect_back(client.callback, query, error="redirect_uri_mismatch")
        if query.get("code_challenge") and query.get("code_challenge_method") != "S256":
            return self._redirect_back(redirect, query, error="invalid_request")
        if not is_confirmed and self.signed_in_user.id not in client.authorized_user_ids:
            names = {"app": html.escape(client.app.slug), "login": html.escape(self.signed_in_user.login)}
            return 200, {"content-type": "text/html; charset=utf-8"}, CONSENT_HTML.format(**names).encode()
        client.authorized_user_ids.add(self.signed_in_user.id)
        code = secrets.token_hex(10)
        self._codes[code] = _AuthorizationCode(
            client,
            self.signed_in_user,
            redirect,
            query.get("code_challenge", ""),
            datetime.now(UTC) + CODE_LIFETIME,
        )
        return self._redirect_back(redirect, query, code=code)

    def _redirect_back(self, redirect: str, query: Mapping[str, str], **parameters: str) -> HttpReply:
        with_state = parameters | ({"state": query["state"]} if "state" in query else {})
        return 302, {"location": f"{redirect}?{urlencode(with_state)}"}, b""

    def _exchange_code(self, form: Mapping[str, str]) -> dict[str, str | int]:
        """Exchanges a code for a token, once per code. As on GitHub, errors also have status 200."""
        client = self._state.clients.get(form.get("client_id", ""))
        if client is None or not secrets.compare_digest(client.secret, form.get("client_secret", "")):
            return {"error": "incorrect_client_credentials"}
        code = self._codes.pop(form.get("code", ""), None)
        if code is None or code.client is not client or code.expires <= datetime.now(UTC):
            return {"error": "bad_verification_code"}
        if form.get("redirect_uri", code.redirect) != code.redirect:
            return {"error": "redirect_uri_mismatch"}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if code.challenge and base64.urlsafe_b64encode(digest).decode().rstrip("=") != code.challenge:
            return {"error": "bad_verification_code"}
        token = self._create_token(client, code.user)
        lives = round(TOKEN_LIFETIME.total_seconds())
        return {"access_token": token.value, "token_type": "bearer", "scope": "", "expires_in": lives}

    def _create_token(self, client: OAuthClient, user: User) -> Token:
        """Creates a token that can read all public repositories, and the user's private repositories in which
        the App is installed.
        """
        installed = [place for place in self._state.installations if place.app is client.app]
        ids = frozenset(repo.id for place in installed for repo in place.repositories)
        made = Token(
            f"ghu_{secrets.token_hex(18)}", user, datetime.now(UTC) + TOKEN_LIFETIME, ids, client=client
        )
        self._state.tokens[made.value] = made
        return made


@operation("DELETE", "/applications/{client_id}/token")
def revoke_token(call: RequestContext) -> RestResponse:
    """Revokes a user's token. Only the App for which the token was created can request this."""
    if not isinstance(call.actor, OAuthClient) or call.actor.id != call.path["client_id"]:
        raise ApiError(401, "Requires authentication")
    token = call.state.tokens.get(str(call.body.get("access_token")))
    if token is None or token.client is not call.actor:
        raise ApiError(422, "Validation Failed")
    token.expires = datetime.now(UTC)
    return RestResponse(None, 204)
