"""Downloads the logs of GitHub Actions jobs as streams. Only GitHub's API receives the token."""

import asyncio
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx

from patchwright.bot.errors import ForgeUnavailable
from patchwright.bot.github.http_client import join_path
from patchwright.bot.github.tls import create_ssl_context
from patchwright.resolver.ci.log_excerpt import LogExcerpt
from patchwright.resolver.domain import Credentials
from patchwright.resolver.errors import Forbidden, ForgeError, NotFound

FETCH_TIMEOUT_SECONDS = 60.0  # seconds for the download of one log
MAX_REDIRECTS = 3  # GitHub redirects a download once
MAX_LOG_BYTES = 200_000_000


class ActionsLogs:
    """Reads the logs of GitHub Actions jobs from the API of one GitHub instance."""

    def __init__(self, api_url: str, ca_bundle: Path | None) -> None:
        self._api_url = api_url.rstrip("/")
        self._ssl_context = create_ssl_context(ca_bundle)

    async def fetch(self, job_path: tuple[str, ...], credentials: Credentials) -> str:
        """Returns the part of a job's log that shows why the job failed. `job_path` is the job's API path.

        Raises NotFound if GitHub no longer has the log, Forbidden if the token may not read it, and
        ForgeError for other failures.
        Source: docs.github.com/rest/actions/workflow-jobs#download-job-logs-for-a-workflow-run
        """
        excerpt = LogExcerpt()
        url, sends_token = f"{self._api_url}/{join_path(*job_path, 'logs')}", True
        try:
            async with (
                asyncio.timeout(FETCH_TIMEOUT_SECONDS) as limit,
                httpx.AsyncClient(verify=self._ssl_context, follow_redirects=False) as client,
            ):
                for _ in range(MAX_REDIRECTS + 1):
                    # A redirect leads to a signed URL outside GitHub's API. The token must not be sent there.
                    headers = {"Authorization": f"Bearer {credentials.token}"} if sends_token else {}
                    async with client.stream("GET", url, headers=headers) as response:
                        if response.is_redirect:
                            url = self._redirect_target(url, response.headers.get("location", ""))
                            sends_token = False
                            continue
                        _raise_for_status(response.status_code)
                        await _read_body_into(response, excerpt)
                        return excerpt.render()
        except TimeoutError as exc:
            if not limit.expired():
                raise
            excerpt.mark_truncated(f"the download took longer than {FETCH_TIMEOUT_SECONDS:.0f} s")
            if text := excerpt.render():
                return text
            raise ForgeUnavailable("the log download timed out") from exc
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as exc:
            raise ForgeUnavailable(f"the log could not be fetched ({type(exc).__name__})") from exc
        raise ForgeError("the log URL redirects too often")

    def _redirect_target(self, url: str, location: str) -> str:
        """Returns the URL that a redirect leads to. This URL must use HTTPS or the same scheme as the API;
        otherwise, ForgeError is raised.
        """
        target = urljoin(url, location)
        if urlsplit(target).scheme not in ("https", urlsplit(self._api_url).scheme):
            raise ForgeError("the log URL redirects to an insecure or unknown scheme")
        return target


def _raise_for_status(status: int) -> None:
    if status in (404, 410):
        raise NotFound("GitHub no longer has the log")
    if status in (401, 403):
        raise Forbidden("no permission to read logs; the App needs the permission actions: read")
    if status >= 500 or status == 429:
        raise ForgeUnavailable(f"the log request failed with status {status}")
    if status != 200:
        raise ForgeError(f"the log request failed with status {status}")


async def _read_body_into(response: httpx.Response, excerpt: LogExcerpt) -> None:
    size = 0
    async for chunk in response.aiter_bytes(65_536):
        excerpt.feed(chunk)
        if (size := size + len(chunk)) > MAX_LOG_BYTES:
            excerpt.mark_truncated(f"the log is larger than {MAX_LOG_BYTES // 1_000_000} MB")
            return
