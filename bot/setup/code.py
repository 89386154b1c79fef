"""The one-time code that opens the page of the setup, and what its visitor carries from then on."""

import hmac
import secrets
import time
from collections.abc import Callable
from typing import Literal

LETTERS = "ABCDEFGHJKMNPQRSTVWXYZ23456789"  # none that is taken for another
LENGTH, GROUP = 12, 4  # 30^12 codes: a thousand million years of guesses at 20 a second
MOST_WRONG = 20
LASTS = 3600.0  # seconds: of a code, and of what its visitor carries

Entered = Literal["right", "wrong", "void"]


class Code:
    """Good once, for an hour, and for twenty wrong tries; then only a restart gives another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        letters = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
        self.text = "-".join(letters[at : at + GROUP] for at in range(0, LENGTH, GROUP))
        self._clock = clock
        self._until = clock() + LASTS
        self._wrong = 0
        self._used = False

    def enter(self, said: str) -> Entered:
        """Whether it is this one; what people add or leave out between the groups does not count."""
        if self._used or self._wrong >= MOST_WRONG or self._clock() >= self._until:
            return "void"
        if not hmac.compare_digest(_plain(said), _plain(self.text)):
            self._wrong += 1
            return "wrong"
        self._used = True
        return "right"


class Visitor:
    """Whoever entered the code: the browser carries a token of which only we know."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._token = b""
        self._until = 0.0

    def admit(self) -> str:
        """The token of a browser that is known from now on; an earlier one is not any more."""
        token = secrets.token_urlsafe(32)
        self._token, self._until = token.encode(), self._clock() + LASTS
        return token

    def knows(self, token: str) -> bool:
        shown = token.encode("utf-8", "replace")
        return bool(self._token) and self._clock() < self._until and hmac.compare_digest(shown, self._token)


def _plain(code: str) -> bytes:
    return "".join(letter for letter in code.upper() if letter.isalnum()).encode("utf-8", "replace")
