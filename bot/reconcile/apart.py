"""What fails in one place hides nothing of the others."""

import contextlib
import logging
from collections.abc import Iterator

from resolver.errors import ForgeError, RateLimited

log = logging.getLogger(__name__)


class Apart:
    """One round through many places."""

    def __init__(self) -> None:
        self.again = False
        """Whether what failed somewhere may work soon."""

    @contextlib.contextmanager
    def each(self, place: str) -> Iterator[None]:
        """Leave this place out when it fails. Raises RateLimited: that is of more than one."""
        try:
            yield
        except RateLimited:
            raise
        except ForgeError as exc:
            log.warning("left out", extra={"place": place, "reason": str(exc)})
            self.again |= exc.retryable
