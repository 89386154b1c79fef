"""Runs jobs, retries them after transient errors, and reports permanent failures in their issues or pull
requests.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from patchwright.bot.errors import QueueDown
from patchwright.bot.jobs import Cancellation, CancelReason, Failed, JobResult, Retry, current_cancellation
from patchwright.bot.observe.faults import classify_error
from patchwright.resolver.domain import Job, Outcome
from patchwright.resolver.errors import Interrupted, LogLocked, RateLimited, ResolverError
from patchwright.runtime.errors import SandboxError

log = logging.getLogger(__name__)

MAX_TRIES = 5
FIRST_RETRY_SECONDS = 10.0  # Doubled after every try.
MAX_RETRY_SECONDS = 300.0
LOG_TAKEN_RETRY_SECONDS = 60.0  # Pause before the next try if another worker holds the job's log.
# Time limit of one try. Runs have shorter limits of their own. This limit only frees the worker if a try
# hangs.
TRY_TIMEOUT_SECONDS = 12 * 3600.0
MAX_ERROR_CHARS = 500  # Maximum length of the error message in a job record.

JobResolver: TypeAlias = Callable[[Job], Awaitable[Outcome]]
FailureReporter: TypeAlias = Callable[[Job, Exception], Awaitable[object]]


FAILURE_REPORT_TIMEOUT_SECONDS = 300.0  # Enough for a clone, a push and a comment.


class JobAbandoned(Exception):
    """The error that is reported if a job's worker died in every try, or a try took too long."""


class JobCanceled(Exception):
    """The error that is reported if the job was canceled. Its message contains the reason."""


CANCEL_MESSAGES: Mapping[CancelReason, str] = {
    "requested": "{person} stopped this run.",
    "unlabeled": "{person} removed the label.",
    "closed": "{person} closed this conversation.",
    "access_lost": "My access to this repository was revoked.",
}
"""Maps the reason of a cancellation to the sentence that the bot posts on GitHub."""


def cancel_message(cancellation: Cancellation) -> str:
    """Returns the sentence about a cancellation that is posted in the thread."""
    unknown = "The operator" if cancellation.reason == "requested" else "Someone"
    person = f"@{cancellation.by}" if cancellation.by else unknown
    return CANCEL_MESSAGES[cancellation.reason].format(person=person)


class JobRunner:
    """Runs jobs through `resolve`. `JobRunner.run` is the handler for `JobQueue.process_jobs`.

    When a worker shuts down, its running tries are canceled without a report. The next try of each job
    resumes the run from its log.
    """

    def __init__(
        self,
        resolve: JobResolver,
        report_failure: FailureReporter,
        *,
        max_tries: int = MAX_TRIES,
        first_retry_seconds: float = FIRST_RETRY_SECONDS,
        timeout_seconds: float = TRY_TIMEOUT_SECONDS,
    ) -> None:
        self._resolve = resolve
        self._on_failure = report_failure
        self._max_tries = max_tries
        self._first_retry_seconds = first_retry_seconds
        self._timeout_seconds = timeout_seconds

    async def run(self, job: Job, tries: int) -> JobResult | Retry:
        """Runs one try of the job. Returns the result of the job, or a Retry if the job needs another try.

        Raises only CancelledError. If the job was canceled, first reports the cancellation in its issue or pull
        request.
        """
        try:
            if tries > self._max_tries:
                raise JobAbandoned(
                    f"The job was started {self._max_tries} times, and its worker died each time."
                )
            async with asyncio.timeout(self._timeout_seconds) as limit:
                return await self._resolve(job)
        except asyncio.CancelledError:
            if cancellation := current_cancellation():
                # The report has its own task, because the current task may be canceled again while the report
                # is posted.
                await asyncio.wait(
                    (
                        asyncio.create_task(
                            self._report_failure(job, JobCanceled(cancel_message(cancellation)))
                        ),
                    )
                )
            raise
        except Exception as exc:
            error = unwrap_exception_group(exc)
            if isinstance(error, TimeoutError) and limit.expired():
                error = JobAbandoned(f"The job took longer than {self._timeout_seconds:g} s.")
            # Another worker took over the job because it considered this worker dead. That worker reports the
            # result.
            if isinstance(error, LogLocked):
                log.warning("job taken over", extra={"job": job.id, "reason": str(error)})
                return Retry(delay_seconds=LOG_TAKEN_RETRY_SECONDS, counts_as_try=False)
            _log_failure(job, tries, error)
            if is_retryable(error) and tries < self._max_tries:
                return Retry(delay_seconds=self._retry_delay(error, tries))
            await self._report_failure(job, error)
            return Failed(
                error=f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS], fault=classify_error(error)
            )

    async def _report_failure(self, job: Job, error: Exception) -> None:
        try:
            async with asyncio.timeout(FAILURE_REPORT_TIMEOUT_SECONDS):
                await self._on_failure(job, error)
        except (
            ResolverError,
            SandboxError,
            TimeoutError,
            OSError,
        ) as exc:  # The job may have failed because the forge is unavailable.
            log.error("failure not reported", extra={"job": job.id, "error": type(exc).__name__})

    def _retry_delay(self, error: Exception, tries: int) -> float:
        if isinstance(error, RateLimited):
            return max(self._first_retry_seconds, (error.until - datetime.now(UTC)).total_seconds())
        return min(self._first_retry_seconds * 2.0 ** (tries - 1), MAX_RETRY_SECONDS)


def _log_failure(job: Job, tries: int, error: Exception) -> None:
    """Logs a failed try. An unexpected error is a bug, so its traceback is logged, too.

    The traceback of an expected error is logged only at the level `debug`, because it can be very long.
    """
    fields = {"job": job.id, "try": tries, "error": str(error)}
    if isinstance(error, ResolverError | SandboxError | JobAbandoned):
        log.error("job failed", extra=fields)
        log.debug("job failed", extra=fields, exc_info=error)
    else:
        log.error("job failed", extra=fields, exc_info=error)


def is_retryable(error: Exception) -> bool:
    """Returns True if another try may succeed. Unexpected exceptions are bugs and are not retried."""
    return isinstance(error, Interrupted | QueueDown) or (
        isinstance(error, ResolverError | SandboxError) and error.retryable
    )


def unwrap_exception_group(error: Exception) -> Exception:
    """Returns the error inside nested exception groups, if each group contains only one error. A task group
    raises such groups.
    """
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
