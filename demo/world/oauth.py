"""Logging in through an App at the stand-in: the web flow of GitHub, with its refusals.

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

from demo.world.access import Refusal
from demo.world.call import Answer, Call
from demo.world.operations import operation
from demo.world.registered import Client as Client
from demo.world.state import App, State, Token, User

AUTHORIZE, ACCESS_TOKEN = "/login/oauth/authorize", "/login/oauth/access_token"
CODE_LIVES = timedelta(minutes=10)
TOKEN_LIVES = timedelta(hours=8)

Reply = tuple[int, dict[str, str], bytes]

CONSENT = """<!doctype html><html lang="en"><title>Authorize</title><main><h1>Authorize {app}</h1>
<form method="post"><button>Authorize {app} as {login}</button></form></main></html>"""


@dataclass(frozen=True)
class _Code:
    client: Client
    user: User
    redirect: str
    challenge: str
    expires: datetime


class OAuth:
    """Answers what a browser and a server ask below `/login/oauth/`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._codes: dict[str, _Code] = {}
        self.sits_here: User | None = None
        """Who is logged in to the stand-in in every browser."""

    def client(self, app: App, callback: str) -> Client:
        """The App as one that people can log in through."""
        made = Client(app, callback, f"Iv23{secrets.token_hex(8)}", secrets.token_hex(20))
        self._state.clients[made.id] = made
        return made

    def respond(self, method: str, path: str, query: Mapping[str, str], body: bytes, accept: str) -> Reply:
        """Status, headers and body."""
        if path == AUTHORIZE and method in ("GET", "POST"):
            return self._authorize(query, agreed=method == "POST")
        if path == ACCESS_TOKEN and method == "POST":
            given = dict(parse_qsl(body.decode(errors="replace")))
            said = (
                json.dumps(self._exchanged(given)) if "json" in accept else urlencode(self._exchanged(given))
            )
            return 200, {"content-type": "application/json; charset=utf-8"}, said.encode()
        return 404, {"content-type": "text/plain"}, b"Not Found"

    def _authorize(self, query: Mapping[str, str], *, agreed: bool) -> Reply:
        client = self._state.clients.get(query.get("client_id", ""))
        if client is None or self.sits_here is None:
            return 404, {"content-type": "text/plain"}, b"Not Found"
        redirect = query.get("redirect_uri", client.callback)
        if not redirect.startswith(client.callback):
            return self._back(client.callback, query, error="redirect_uri_mismatch")
        if query.get("code_challenge") and query.get("code_challenge_method") != "S256":
            return self._back(redirect, query, error="invalid_request")
        if not agreed and self.sits_here.id not in client.known_to:
            names = {"app": html.escape(client.app.slug), "login": html.escape(self.sits_here.login)}
            return 200, {"content-type": "text/html; charset=utf-8"}, CONSENT.format(**names).encode()
        client.known_to.add(self.sits_here.id)
        code = secrets.token_hex(10)
        self._codes[code] = _Code(
            client, self.sits_here, redirect, query.get("code_challenge", ""), datetime.now(UTC) + CODE_LIVES
        )
        return self._back(redirect, query, code=code)

    def _back(self, redirect: str, query: Mapping[str, str], **said: str) -> Reply:
        with_state = said | ({"state": query["state"]} if "state" in query else {})
        return 302, {"location": f"{redirect}?{urlencode(with_state)}"}, b""

    def _exchanged(self, given: Mapping[str, str]) -> dict[str, str | int]:
        """A token for a code, once; else GitHub's error, which it says with status 200 too."""
        client = self._state.clients.get(given.get("client_id", ""))
        if client is None or not secrets.compare_digest(client.secret, given.get("client_secret", "")):
            return {"error": "incorrect_client_credentials"}
        code = self._codes.pop(given.get("code", ""), None)
        if code is None or code.client is not client or code.expires <= datetime.now(UTC):
            return {"error": "bad_verification_code"}
        if given.get("redirect_uri", code.redirect) != code.redirect:
            return {"error": "redirect_uri_mismatch"}
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        if code.challenge and base64.urlsafe_b64encode(digest).decode().rstrip("=") != code.challenge:
            return {"error": "bad_verification_code"}
        token = self._token(client, code.user)
        lives = round(TOKEN_LIVES.total_seconds())
        return {"access_token": token.value, "token_type": "bearer", "scope": "", "expires_in": lives}

    def _token(self, client: Client, user: User) -> Token:
        """One that reads what this person may see, private repositories only where the app is installed."""
        installed = [place for place in self._state.installations if place.app is client.app]
        ids = frozenset(repo.id for place in installed for repo in place.repositories)
        made = Token(
            f"ghu_{secrets.token_hex(18)}", user, datetime.now(UTC) + TOKEN_LIVES, ids, client=client
        )
        self._state.tokens[made.value] = made
        return made


@operation("DELETE", "/applications/{client_id}/token")
def revoke(call: Call) -> Answer:
    """An App takes back what a person's log-in gave it."""
    if not isinstance(call.actor, Client) or call.actor.id != call.path["client_id"]:
        raise Refusal(401, "Requires authentication")
    token = call.state.tokens.get(str(call.body.get("access_token")))
    if token is None or token.client is not call.actor:
        raise Refusal(422, "Validation Failed")
    token.expires = datetime.now(UTC)
    return Answer(None, 204)
