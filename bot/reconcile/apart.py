"""What fails in one place hides nothing of the others."""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator

from bot.errors import Unanswered
from bot.github.rest import Rest
from resolver.errors import ForgeError, RateLimited

log = logging.getLogger(__name__)


class Apart:
    """One round through many places."""

    def __init__(self, *of_all: type[ForgeError]) -> None:
        """`of_all`: what is of more than one of them; a rate limit always is."""
        self._of_all: tuple[type[ForgeError], ...] = (RateLimited, *of_all)
        self.again = False
        """Whether what failed somewhere may work soon."""

    @contextlib.contextmanager
    def each(self, place: str) -> Iterator[None]:
        """Leave this place out when it fails. Raises what is of all."""
        try:
            yield
        except self._of_all:
            raise
        except ForgeError as exc:
            self._leave_out(place, exc)

    @contextlib.asynccontextmanager
    async def each_asked(self, place: str, rest: Rest) -> AsyncIterator[None]:
        """The same for what GitHub is asked. Raises ForgeError, too, where it does not answer whatever it is asked."""
        try:
            yield
        except self._of_all:
            raise
        except ForgeError as exc:
            if isinstance(exc, Unanswered):
                await rest.greet()
            self._leave_out(place, exc)

    def _leave_out(self, place: str, exc: ForgeError) -> None:
        log.warning("left out", extra={"place": place, "reason": str(exc)})
        self.again |= exc.retryable
