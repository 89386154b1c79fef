"""Who is logged in to the page, and who is about to be.

Whoever reads this Redis can become nobody: it holds digests of what browsers hold, and the tokens of people encrypted
with keys that only their browsers' cookies make.
"""

import base64
import hashlib
import hmac
import os
import secrets
import time
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from bot.redis.client import redis_client, redis_errors
from runtime.frozen import Frozen

SESSION_SECONDS = 8 * 3600  # GitHub's tokens for people who log in through an App live no longer
COOKIE_SECONDS = 30 * 86_400  # longer than a session: whoever brings it later is told that theirs has ended
LOGIN_SECONDS = 600  # GitHub's codes live no longer
NONCE = 12  # bytes, as AES-GCM has it


class Person(Frozen):
    """Somebody who is logged in."""

    login: str
    id: int | None
    """At GitHub. None: the operator, who may do everything."""


@dataclass(frozen=True)
class Session:
    """A person's log-in in one browser."""

    person: Person
    token: str
    """That GitHub gave them for us; "": the operator has none."""
    csrf: str
    """What a form of ours has to bring, so that it is no other site's."""
    expires: float
    """Seconds since 1970."""


class _Kept(Frozen):
    person: Person
    token: str
    """Encrypted."""
    expires: float
    operator: str = ""
    """Proof of the operator's token with which it began; "": it is not the operator's."""


class _Begun(Frozen):
    browser: str
    back_to: str


class Sessions:
    """Log-ins on a Redis. Every method may raise QueueDown."""

    def __init__(self, url: str, seconds: float = SESSION_SECONDS, *, operator_token: str = "") -> None:
        """`operator_token`: the operator's sessions are good while it is the same; "": none is.

        Raises SettingsError for what is no URL of a Redis.
        """
        self._redis = redis_client(url)
        self._seconds = seconds
        self._operator_token = operator_token

    async def open(self, person: Person, token: str = "") -> str:
        """Log them in; the value of their cookie."""
        cookie = secrets.token_urlsafe(32)
        kept = _Kept(
            person=person,
            token=_sealed(cookie, token),
            expires=time.time() + self._seconds,
            operator=self._proof(cookie) if person.id is None else "",
        )
        with redis_errors():
            await self._redis.set(_session(cookie), kept.model_dump_json(), px=round(self._seconds * 1000))
        return cookie

    async def find(self, cookie: str) -> Session | None:
        """None: nobody is logged in with this cookie (any more)."""
        if not cookie:
            return None
        with redis_errors():
            stored = await self._redis.get(_session(cookie))
        try:
            kept = _Kept.model_validate_json(stored or b"")
        except ValidationError:
            return None
        if kept.person.id is None and not self._is_operator(cookie, kept):
            return None
        return Session(kept.person, _opened(cookie, kept.token), _derived(cookie, "form"), kept.expires)

    def _is_operator(self, cookie: str, kept: _Kept) -> bool:
        return bool(self._operator_token) and hmac.compare_digest(
            kept.operator.encode(), self._proof(cookie).encode()
        )

    def _proof(self, cookie: str) -> str:
        """Made with the cookie, so that whoever reads Redis cannot try tokens with it."""
        return _derived(cookie, f"operator {self._operator_token}")

    async def leave(self, cookie: str) -> None:
        """Log them out."""
        with redis_errors():
            await self._redis.delete(_session(cookie))

    async def begin(self, browser: str, back_to: str) -> str:
        """Somebody in this browser goes to GitHub, and wants to see `back_to` afterwards; the state to send along."""
        state = secrets.token_urlsafe(32)
        begun = _Begun(browser=_digest(browser), back_to=back_to)
        with redis_errors():
            await self._redis.set(_login(state), begun.model_dump_json(), ex=LOGIN_SECONDS)
        return state

    async def came_back(self, browser: str, state: str) -> str | None:
        """Where they wanted to go; None: this state is not of this browser, is too old, or was used before."""
        with redis_errors():
            stored = await cast("Any", self._redis.getdel(_login(state)))
        try:
            begun = _Begun.model_validate_json(stored or b"")
        except ValidationError:
            return None
        return begun.back_to if hmac.compare_digest(begun.browser, _digest(browser)) else None

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)


def verifier(browser: str) -> str:
    """The secret of a log-in that only this browser's cookie makes. Source: RFC 7636"""
    return _derived(browser, "verifier")


def challenge(browser: str) -> str:
    """What the browser shows GitHub of it."""
    digest = hashlib.sha256(verifier(browser).encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _session(cookie: str) -> str:
    return f"patchwright:session:{_digest(cookie)}"


def _login(state: str) -> str:
    return f"patchwright:login:{_digest(state)}"


def _digest(value: str) -> str:
    return hashlib.sha256(b"name:" + value.encode()).hexdigest()


def _derived(value: str, purpose: str) -> str:
    return hmac.new(value.encode(), purpose.encode(), hashlib.sha256).hexdigest()


def _sealed(cookie: str, token: str) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if not token:
        return ""
    nonce = os.urandom(NONCE)
    sealed = AESGCM(bytes.fromhex(_derived(cookie, "token"))).encrypt(nonce, token.encode(), None)
    return base64.b64encode(nonce + sealed).decode()


def _opened(cookie: str, sealed: str) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if not sealed:
        return ""
    content = base64.b64decode(sealed)
    key = AESGCM(bytes.fromhex(_derived(cookie, "token")))
    return key.decrypt(content[:NONCE], content[NONCE:], None).decode()
