"""The log of a job: streamed from where GitHub keeps it, and never kept whole. Our token goes to GitHub's API alone."""

import asyncio
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx

from bot.errors import Unanswered
from bot.github.client import join
from bot.github.trust import trust
from resolver.ci.check_log import Excerpt
from resolver.domain import Credentials
from resolver.errors import Forbidden, ForgeError, NotFound

SECONDS = 60.0  # for one log
HOPS = 3  # redirects; GitHub needs one
MOST_BYTES = 200_000_000


class JobLogs:
    """Reads the logs of one GitHub."""

    def __init__(self, api_url: str, ca_bundle: Path | None) -> None:
        self._api_url = api_url.rstrip("/")
        self._trust = trust(ca_bundle)

    async def fetch(self, job: tuple[str, ...], credentials: Credentials) -> str:
        """The part of a job's log that tells why it failed; `job` is its path in the API.

        Raises NotFound when it is not kept any more, Forbidden, or ForgeError.
        Source: docs.github.com/rest/actions/workflow-jobs#download-job-logs-for-a-workflow-run
        """
        excerpt = Excerpt()
        url, ours = f"{self._api_url}/{join(*job, 'logs')}", True
        try:
            async with (
                asyncio.timeout(SECONDS) as limit,
                httpx.AsyncClient(verify=self._trust, follow_redirects=False) as client,
            ):
                for _ in range(HOPS + 1):
                    # Where it leads, the address itself is the permission, and it is not GitHub's API any more.
                    headers = {"Authorization": f"Bearer {credentials.token}"} if ours else {}
                    async with client.stream("GET", url, headers=headers) as answer:
                        if answer.is_redirect:
                            url, ours = self._led(url, answer.headers.get("location", "")), False
                            continue
                        _check(answer.status_code)
                        await _hear(answer, excerpt)
                        return excerpt.text()
        except TimeoutError as exc:
            if not limit.expired():
                raise
            excerpt.break_off(f"it took longer than {SECONDS:.0f} s")
            if text := excerpt.text():
                return text
            raise Unanswered("the log did not come in time") from exc
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as exc:
            raise Unanswered(f"the log could not be fetched ({type(exc).__name__})") from exc
        raise ForgeError("the log leads on and on")

    def _led(self, url: str, location: str) -> str:
        """Where an answer leads: over no weaker connection than the API's."""
        target = urljoin(url, location)
        if urlsplit(target).scheme not in ("https", urlsplit(self._api_url).scheme):
            raise ForgeError("the log leads to an address that is not one of the web's")
        return target


def _check(status: int) -> None:
    if status in (404, 410):
        raise NotFound("its log is not kept any more")
    if status in (401, 403):
        raise Forbidden("we may not read logs here: the App needs the permission actions: read")
    if status >= 500 or status == 429:
        raise Unanswered(f"the log was answered with {status}")
    if status != 200:
        raise ForgeError(f"the log was answered with {status}")


async def _hear(answer: httpx.Response, excerpt: Excerpt) -> None:
    heard = 0
    async for piece in answer.aiter_bytes(65_536):
        excerpt.feed(piece)
        if (heard := heard + len(piece)) > MOST_BYTES:
            excerpt.break_off(f"it is longer than {MOST_BYTES // 1_000_000} MB")
            return
