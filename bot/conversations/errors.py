"""The errors of conversations, besides those of the resolver and the sandbox."""

from patchwright.resolver.errors import ResolverError


class Unavailable(ResolverError):
    """The server cannot do this now, but may do it later."""


class Conflict(ResolverError):
    """The request does not fit the state of the conversation or workspace."""
