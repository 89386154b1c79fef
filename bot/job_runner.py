"""Runs jobs, retries them after transient errors, and reports permanent failures in their issues or pull
requests.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from patchwright.bot.errors import ForgeUnavailable, QueueDown
from patchwright.bot.faults import classify_error
from patchwright.bot.jobs import (
    Cancellation,
    CancelReason,
    Failed,
    GitHubWait,
    JobRecord,
    JobResult,
    Retry,
    current_cancellation,
)
from patchwright.resolver.domain import Job, JobId, Outcome
from patchwright.resolver.errors import Interrupted, LogLocked, RateLimited, RemoteUnavailable, ResolverError
from patchwright.runtime.errors import SandboxError

log = logging.getLogger(__name__)

MAX_TRIES = 5
FIRST_RETRY_SECONDS = 10.0  # Doubled after every try.
MAX_RETRY_SECONDS = 300.0
# During an outage of GitHub, the wait before the next try is as long as the outage so far, within these limits.
MAX_GITHUB_WAIT_SECONDS = 3600.0
MAX_OUTAGE_SECONDS = 24 * 3600.0  # After an outage of this length, the job fails.
# A try that lasted longer got responses from GitHub. If it fails all the same, a new outage has begun.
MAX_OUTAGE_TRY_SECONDS = 600.0
LOG_TAKEN_RETRY_SECONDS = 60.0  # Pause before the next try if another worker holds the job's log.
# Time limit of one try. Runs have shorter limits of their own. This limit only frees the worker if a try
# hangs.
TRY_TIMEOUT_SECONDS = 12 * 3600.0
MAX_ERROR_CHARS = 500  # Maximum length of the error message in a job record.

JobResolver: TypeAlias = Callable[[Job], Awaitable[Outcome]]
FailureReporter: TypeAlias = Callable[[Job, Exception], Awaitable[object]]
RecordReader: TypeAlias = Callable[[JobId], Awaitable[JobRecord | None]]


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


@dataclass(frozen=True)
class TryLimits:
    """How often and how long a job is tried."""

    max_tries: int = MAX_TRIES
    first_retry_seconds: float = FIRST_RETRY_SECONDS
    timeout_seconds: float = TRY_TIMEOUT_SECONDS
    """Limit of one try."""
    max_outage_seconds: float = MAX_OUTAGE_SECONDS
    """How long a job waits for GitHub."""


DEFAULT_LIMITS = TryLimits()


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
        limits: TryLimits = DEFAULT_LIMITS,
        get_record: RecordReader | None = None,
    ) -> None:
        """`get_record` reads the record of a job, which says how long the job has waited for GitHub. Without it,
        the job waits without an end.
        """
        self._resolve = resolve
        self._on_failure = report_failure
        self._limits = limits
        self._get_record = get_record

    async def run(self, job: Job, tries: int) -> JobResult | Retry:
        """Runs one try of the job. Returns the result of the job, or a Retry if the job needs another try.

        Raises only CancelledError. If the job was canceled, first reports the cancellation in its issue or pull
        request.
        """
        started_at = time.monotonic()
        try:
            if tries > self._limits.max_tries:
                raise JobAbandoned(
                    f"The job was started {self._limits.max_tries} times, and its worker died each time."
                )
            async with asyncio.timeout(self._limits.timeout_seconds) as limit:
                return await self._resolve(job)
        except asyncio.CancelledError:
            await self._report_cancellation(job)
            raise
        except Exception as exc:
            error = unwrap_exception_group(exc)
            if current_cancellation():  # The end of a process or a sandbox can hide the cancellation.
                log.warning("job stopped with an error", extra={"job": job.id, "error": str(error)})
                await self._report_cancellation(job)
                raise asyncio.CancelledError from exc
            if isinstance(error, TimeoutError) and limit.expired():
                error = JobAbandoned(f"The job took longer than {self._limits.timeout_seconds:g} s.")
            # Another worker took over the job because it considered this worker dead. That worker reports the
            # result.
            if isinstance(error, LogLocked):
                log.warning("job taken over", extra={"job": job.id, "reason": str(error)})
                return Retry(delay_seconds=LOG_TAKEN_RETRY_SECONDS, counts_as_try=False)
            _log_failure(job, tries, error)
            if is_outage(error) and (retry := await self._wait_for_github(job, error, started_at)):
                return retry
            if is_retryable(error) and tries < self._limits.max_tries:
                return Retry(delay_seconds=self._retry_delay(tries))
            await self._report_failure(job, error)
            return Failed(
                error=f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS], fault=classify_error(error)
            )

    async def _report_cancellation(self, job: Job) -> None:
        """Reports in the thread that somebody stopped the job. Does nothing if only the worker shuts down."""
        if cancellation := current_cancellation():
            canceled = JobCanceled(cancel_message(cancellation))
            # The report has its own task, because the current task may be canceled again while the report is
            # posted.
            await asyncio.wait((asyncio.create_task(self._report_failure(job, canceled)),))

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

    async def _wait_for_github(self, job: Job, error: Exception, started_at: float) -> Retry | None:
        """Returns when to try again during an outage of GitHub, or None if the outage is too long.

        `started_at` is the start of the failed try on the monotonic clock.
        """
        record = None
        if self._get_record is not None:
            with contextlib.suppress(QueueDown):
                record = await self._get_record(job.id)
        now = datetime.now(UTC)
        is_new = time.monotonic() - started_at > MAX_OUTAGE_TRY_SECONDS
        since = record.github_wait.since if record and record.github_wait and not is_new else now
        elapsed = (now - since).total_seconds()
        if elapsed >= self._limits.max_outage_seconds:
            return None
        delay = min(max(elapsed, self._limits.first_retry_seconds), MAX_GITHUB_WAIT_SECONDS)
        delay = min(delay, self._limits.max_outage_seconds - elapsed)
        if isinstance(error, RateLimited):
            delay = max(delay, (error.until - now).total_seconds())
        wait = GitHubWait(since=since, next_try=now + timedelta(seconds=delay))
        return Retry(delay_seconds=delay, counts_as_try=False, github_wait=wait)

    def _retry_delay(self, tries: int) -> float:
        return min(self._limits.first_retry_seconds * 2.0 ** (tries - 1), MAX_RETRY_SECONDS)


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


def is_outage(error: Exception) -> bool:
    """Returns True if GitHub did not respond, or accepts no requests at the moment."""
    return isinstance(error, ForgeUnavailable | RateLimited | RemoteUnavailable)


def unwrap_exception_group(error: Exception) -> Exception:
    """Returns the error inside nested exception groups, if each group contains only one error. A task group
    raises such groups.
    """
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
