"""Catches errors in a loop over resources, so that a failing resource does not stop the loop."""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator

from patchwright.bot.errors import ForgeUnavailable
from patchwright.bot.github.rest import RestClient
from patchwright.resolver.errors import ForgeError, RateLimited

log = logging.getLogger(__name__)


class ErrorIsolation:
    """Lets a loop over several resources skip the resources that fail."""

    def __init__(self, *fatal_errors: type[ForgeError]) -> None:
        """The loop ends if RateLimited or one of `fatal_errors` is raised. Other errors only skip a resource."""
        self._fatal_errors: tuple[type[ForgeError], ...] = (RateLimited, *fatal_errors)
        self.should_retry = False
        """True if the loop skipped a resource that should be retried soon."""

    @contextlib.contextmanager
    def isolate(self, resource: str) -> Iterator[None]:
        """Skips the resource if the block raises an error that is not fatal."""
        try:
            yield
        except self._fatal_errors:
            raise
        except ForgeError as exc:
            self._skip(resource, exc)

    @contextlib.asynccontextmanager
    async def isolate_request(self, resource: str, rest: RestClient) -> AsyncIterator[None]:
        """Skips the resource if a GitHub request in the block fails.

        Raises fatal errors, and raises ForgeError if GitHub itself is down.
        """
        try:
            yield
        except self._fatal_errors:
            raise
        except ForgeError as exc:
            if isinstance(exc, ForgeUnavailable):
                await rest.verify_credentials()
            self._skip(resource, exc)

    def _skip(self, resource: str, exc: ForgeError) -> None:
        log.warning("skipped after an error", extra={"resource": resource, "reason": str(exc)})
        self.should_retry |= exc.retryable
