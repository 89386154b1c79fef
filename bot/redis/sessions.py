"""Dashboard sessions, and sign-ins in progress.

An attacker who reads the contents of Redis cannot use them to sign in. Redis stores only hashes of cookies.
Users' tokens are encrypted with keys that are derived from the cookies.
"""

import base64
import hashlib
import hmac
import os
import secrets
import time
from dataclasses import dataclass
from typing import Any, cast

from patchwright.bot.redis.connection import RedisStore, parse_stored
from patchwright.runtime.frozen_model import FrozenModel

SESSION_SECONDS = 8 * 3600  # user tokens of a GitHub App expire after this time
# longer than a session, so that a visitor with an old cookie sees the message "session expired"
COOKIE_SECONDS = 30 * 86_400
LOGIN_SECONDS = 600  # GitHub's OAuth codes expire after this time
NONCE_BYTES = 12  # AES-GCM uses a 96-bit nonce


class DashboardUser(FrozenModel):
    """A signed-in user."""

    login: str
    id: int | None
    """The user's id on GitHub. None for the operator, who has every permission."""


@dataclass(frozen=True)
class Session:
    """A user's session in one browser."""

    user: DashboardUser
    token: str
    """The user's GitHub token for this app; "" for the operator, who has none."""
    csrf_token: str
    """The CSRF token. Every form contains this token, which proves that the dashboard created the form."""
    expires_at: float
    """Seconds since 1970."""


class _StoredSession(FrozenModel):
    user: DashboardUser
    encrypted_token: str
    expires_at: float
    operator_proof: str = ""
    """A value that is derived from the operator token at sign-in, and from the cookie. The value is "" if the
    user is not the operator. The session ends if the operator token changes.
    """


class _PendingLogin(FrozenModel):
    browser_hash: str
    return_to: str


class Sessions(RedisStore):
    """Stores sessions and pending sign-ins in Redis. Every method may raise QueueDown."""

    def __init__(
        self, url: str, lifetime_seconds: float = SESSION_SECONDS, *, operator_token: str = ""
    ) -> None:
        """If `operator_token` changes, the operator's sessions end. If `operator_token` is "", the operator has
        no sessions.

        Raises SettingsError if the Redis URL is invalid.
        """
        super().__init__(url)
        self._lifetime_seconds = lifetime_seconds
        self._operator_token = operator_token

    async def create(self, user: DashboardUser, token: str = "") -> str:
        """Creates a session and returns the value of its cookie."""
        cookie = secrets.token_urlsafe(32)
        stored = _StoredSession(
            user=user,
            encrypted_token=_encrypt(cookie, token),
            expires_at=time.time() + self._lifetime_seconds,
            operator_proof=self._operator_proof(cookie) if user.id is None else "",
        )
        await self._redis.set(
            _session_key(cookie), stored.model_dump_json(), px=round(self._lifetime_seconds * 1000)
        )
        return cookie

    async def find(self, cookie: str) -> Session | None:
        """Returns the session that belongs to a cookie, or None if the session does not exist or has expired."""
        if not cookie:
            return None
        stored = parse_stored(_StoredSession, await self._redis.get(_session_key(cookie)))
        if stored is None or (stored.user.id is None and not self._is_valid_operator(cookie, stored)):
            return None
        return Session(
            stored.user,
            _decrypt(cookie, stored.encrypted_token),
            _derive_key(cookie, "form"),
            stored.expires_at,
        )

    def _is_valid_operator(self, cookie: str, stored: _StoredSession) -> bool:
        return bool(self._operator_token) and hmac.compare_digest(
            stored.operator_proof.encode(), self._operator_proof(cookie).encode()
        )

    def _operator_proof(self, cookie: str) -> str:
        """Derives a value that shows which operator token was used to sign in.

        The value also depends on the cookie. Otherwise, an attacker who reads the contents of Redis could guess
        the token and compare the values.
        """
        return _derive_key(cookie, f"operator {self._operator_token}")

    async def delete(self, cookie: str) -> None:
        """Ends a session."""
        await self._redis.delete(_session_key(cookie))

    async def start_login(self, browser: str, return_to: str) -> str:
        """Starts a sign-in on GitHub, and returns its OAuth `state`. After the sign-in, the browser is
        redirected to the page `return_to`.
        """
        state = secrets.token_urlsafe(32)
        pending = _PendingLogin(browser_hash=_hash(browser), return_to=return_to)
        await self._redis.set(_login_key(state), pending.model_dump_json(), ex=LOGIN_SECONDS)
        return state

    async def finish_login(self, browser: str, state: str) -> str | None:
        """Completes a sign-in, and returns the page to show next. Returns None if the state belongs to
        another browser, has expired or was already used.
        """
        pending = parse_stored(_PendingLogin, await cast("Any", self._redis.getdel(_login_key(state))))
        is_own = pending and hmac.compare_digest(pending.browser_hash, _hash(browser))
        return pending.return_to if pending and is_own else None


def pkce_verifier(browser: str) -> str:
    """Derives the PKCE code verifier from the browser's cookie. Source: RFC 7636"""
    return _derive_key(browser, "verifier")


def pkce_challenge(browser: str) -> str:
    """Returns the PKCE code challenge that the browser sends to GitHub."""
    digest = hashlib.sha256(pkce_verifier(browser).encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _session_key(cookie: str) -> str:
    return f"patchwright:session:{_hash(cookie)}"


def _login_key(state: str) -> str:
    return f"patchwright:login:{_hash(state)}"


def _hash(value: str) -> str:
    return hashlib.sha256(b"name:" + value.encode()).hexdigest()


def _derive_key(value: str, purpose: str) -> str:
    return hmac.new(value.encode(), purpose.encode(), hashlib.sha256).hexdigest()


def _encrypt(cookie: str, token: str) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if not token:
        return ""
    nonce = os.urandom(NONCE_BYTES)
    ciphertext = AESGCM(bytes.fromhex(_derive_key(cookie, "token"))).encrypt(nonce, token.encode(), None)
    return base64.b64encode(nonce + ciphertext).decode()


def _decrypt(cookie: str, ciphertext: str) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if not ciphertext:
        return ""
    content = base64.b64decode(ciphertext)
    key = AESGCM(bytes.fromhex(_derive_key(cookie, "token")))
    return key.decrypt(content[:NONCE_BYTES], content[NONCE_BYTES:], None).decode()
