"""The one-time setup code, and the session of the browser in which a person entered it."""

import hmac
import secrets
import time
from collections.abc import Callable
from typing import Literal

CODE_ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ23456789"  # without characters that look alike
CODE_LENGTH, GROUP_LENGTH = 12, 4  # 30^12 codes; trying all of them takes a billion years at 20 per second
MAX_WRONG_CODES = 20
VALID_SECONDS = 3600.0  # how long a code or a session is valid, in seconds

CodeResult = Literal["right", "wrong", "expired"]


class SetupCode:
    """A code that works once. It expires after an hour, or after MAX_WRONG_CODES wrong attempts. A restart of
    the server creates a new code.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        letters = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))
        self.text = "-".join(letters[at : at + GROUP_LENGTH] for at in range(0, CODE_LENGTH, GROUP_LENGTH))
        self._clock = clock
        self._expires_at = clock() + VALID_SECONDS
        self._wrong_count = 0
        self._is_used = False

    def check(self, entered: str) -> CodeResult:
        """Checks an entered code. Ignores separators and letter case."""
        if self._is_used or self._wrong_count >= MAX_WRONG_CODES or self._clock() >= self._expires_at:
            return "expired"
        if not hmac.compare_digest(_normalize(entered), _normalize(self.text)):
            self._wrong_count += 1
            return "wrong"
        self._is_used = True
        return "right"


class SetupSession:
    """The session of the browser in which the setup code was entered. Only one browser has such a session."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._token = b""
        self._expires_at = 0.0

    def start(self) -> str:
        """Starts a new session and returns its token. Ends the previous session."""
        token = secrets.token_urlsafe(32)
        self._token, self._expires_at = token.encode(), self._clock() + VALID_SECONDS
        return token

    def is_valid(self, token: str) -> bool:
        given = token.encode("utf-8", "replace")
        return (
            bool(self._token) and self._clock() < self._expires_at and hmac.compare_digest(given, self._token)
        )


def _normalize(code: str) -> bytes:
    return "".join(letter for letter in code.upper() if letter.isalnum()).encode("utf-8", "replace")
