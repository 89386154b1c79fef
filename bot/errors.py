"""
What goes wrong with the world around a run.

ForgeError (resolver)
├── Unanswered     no usable answer came: for a write, whether it happened is not known until it is looked up
├── Crowded        there is more urgent to write than this, which may be left out
└── Rejected       GitHub understood the request and will not do it; asking again changes nothing
Forbidden (resolver)
└── NotGranted     an owner has not given us the permission for this
Away               GitHub itself does not answer, whatever it is asked
QueueDown          Redis does not answer
ArchiveDown        the archive does not take, give or list what it should
WorkerFailed       the process that works could not begin; it has said why
"""

from resolver.errors import Forbidden, ForgeError


class Unanswered(ForgeError):
    """The connection broke, nothing came in time, or the server failed."""


class Rejected(ForgeError):
    """The request is well understood and not possible, such as a body that is too long."""

    retryable = False


class NotGranted(Forbidden):
    """An owner has not given our App, or whoever made our token, the permission for this."""


class Crowded(ForgeError):
    """There is more urgent to write than this, which may be left out."""

    def __init__(self, seconds: float) -> None:
        super().__init__("there is more urgent to write to GitHub")
        self.seconds = seconds
        """After which there may be room."""


class Away(Exception):
    """GitHub itself does not answer: no one repository, installation or webhook is to blame."""


class QueueDown(Exception):
    """Redis does not answer: nothing is stored for sure."""


class ArchiveDown(Exception):
    """The archive does not answer, or not as it should; what was to go there stays where it is."""


class WorkerFailed(Exception):
    """The process that works could not begin; what was wrong is on its standard error."""

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(f"The worker ended with {exit_code} before it took a job.")
