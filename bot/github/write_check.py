"""Checks before a run whether its credentials can publish the result, so that no money is spent in vain."""

import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from patchwright.bot.errors import PermissionNotGranted, WriteAccessMissing
from patchwright.bot.github.rest import REQUIRED_PERMISSIONS, RestClient, repo_path
from patchwright.bot.github.tls import create_ssl_context
from patchwright.resolver.domain import Job, Repo
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.run.dependencies import ProgressReporter
from patchwright.resolver.run_log import RunLog

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 20.0  # for the response to the request for refs
IMPOSSIBLE_BRANCH = "patchwright..permission-check"
"""A name that git allows for no branch, so GitHub cannot open a pull request for it."""


class WriteCheck:
    """Finds out which permissions the credentials lack in a repository."""

    def __init__(self, rest: RestClient, server_url: str, ca_bundle: Path | None) -> None:
        self._rest = rest
        self._server_url = server_url
        self._ca_bundle = ca_bundle

    async def require(self, repo: Repo) -> None:
        """Raises WriteAccessMissing if the credentials cannot push a branch or open a pull request. Raises
        ForgeError if GitHub does not respond.
        """
        if self._rest.is_app:
            missing = [name for name in REQUIRED_PERMISSIONS if await self._rest.is_write_denied(repo, name)]
        else:
            missing = await self._probe_token(repo)
        if missing:
            raise WriteAccessMissing(str(repo), missing)

    async def _probe_token(self, repo: Repo) -> list[str]:
        """Tests a token whose permissions are unknown, with two requests that change nothing.

        GitHub does not report what such a token may do: the field `permissions` in a repository's data describes
        a person's role, not the token. A permission counts as missing only if GitHub denies the request for it.
        """
        denied = {
            "contents": await self._is_push_denied(repo),
            "pull_requests": await self._is_pull_request_denied(repo),
        }
        return [name for name, is_denied in denied.items() if is_denied]

    async def _is_push_denied(self, repo: Repo) -> bool:
        """Requests the refs as `git push` does. GitHub responds with 403 if the token cannot push.

        Source: git-scm.com/docs/http-protocol
        """
        url = f"{self._server_url}/{repo.owner}/{repo.name}.git/info/refs"
        token = (await self._rest.get_credentials(repo)).token
        client = httpx.AsyncClient(verify=create_ssl_context(self._ca_bundle), timeout=TIMEOUT_SECONDS)
        try:
            async with (
                client,
                client.stream(
                    "GET", url, params={"service": "git-receive-pack"}, auth=("x-access-token", token)
                ) as response,
            ):
                return response.status_code == httpx.codes.FORBIDDEN
        except httpx.HTTPError as exc:
            log.warning("permission not checked", extra={"repo": str(repo), "reason": type(exc).__name__})
            return False

    async def _is_pull_request_denied(self, repo: Repo) -> bool:
        """Sends an invalid pull request. GitHub checks the permission before it rejects the branch (422).

        Source: docs.github.com/rest/pulls/pulls#create-a-pull-request
        """
        body = {"title": "permission check", "head": IMPOSSIBLE_BRANCH, "base": IMPOSSIBLE_BRANCH}
        try:
            await self._rest.post(dict[str, object], repo, *repo_path(repo), "pulls", body=body)
        except PermissionNotGranted:
            return True
        except ForgeError:  # the expected 422, or a failure that a later request reports
            return False
        return False


def with_write_check(reporter: ProgressReporter, check: WriteCheck) -> ProgressReporter:
    """Wraps a reporter, so that a run that could not publish its result ends before it calls the model."""

    @contextlib.asynccontextmanager
    async def checking_and_reporting(job: Job, run: RunLog) -> AsyncIterator[None]:
        # A plan or an explanation is only a comment. The status comment, which is posted first, fails if the
        # credentials cannot post comments.
        if job.request.command.task not in ("plan", "explain"):
            await check.require(job.repo)
        async with reporter(job, run):
            yield

    return checking_and_reporting
