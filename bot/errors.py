"""
ForgeError (resolver)
├── Unanswered     no usable answer came: for a write, whether it happened is not known until it is looked up
└── Rejected       GitHub understood the request and will not do it; asking again changes nothing
"""

from resolver.errors import ForgeError


class Unanswered(ForgeError):
    """The connection broke, nothing came in time, or the server failed."""


class Rejected(ForgeError):
    """The request is well understood and not possible, such as a body that is too long."""

    retryable = False
