"""Files that people attached to a thread: fetched from the forge's own addresses, and from nowhere else.

The address comes out of a stranger's text. So nothing is asked but what has the exact form of an attachment's
address on the forge, or of the storage that the forge itself leads to; sizes, hops and seconds are bounded.
"""

import asyncio
import re
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import httpx

from bot.github.trust import trust
from resolver.domain import Credentials
from resolver.errors import ForgeError, NotFound
from resolver.forge import MAX_ATTACHMENT

SECONDS = 20.0  # for one file, from the first byte to the last
HOPS = 3  # redirects; GitHub needs one

_PATH = re.compile(
    r"/user-attachments/(assets|files)/[\w./%-]+|/[\w.-]+/[\w.-]+/(assets|files)/\d+/[\w./%-]+", re.ASCII
)
_IMAGES = re.compile(r"(private-)?user-images\.githubusercontent\.com")
# Where github.com leads to: seen in 2026, and as it is in every region's name of the storage.
_STORAGE = re.compile(
    r"github-production-(user-asset|repository-file|repository-image)-[0-9a-f]{6}\.s3(\.[a-z0-9-]+)?\.amazonaws\.com"
    r"|objects\.githubusercontent\.com"
)


def is_attachment(url: str, server_url: str) -> bool:
    """Whether this is the address of an attachment on the forge at `server_url`."""
    try:
        parts = urlsplit(url)
        plain = (parts.username, parts.password, parts.port) == (None, None, urlsplit(server_url).port)
    except ValueError:  # no port, or brackets that hold no address
        return False
    if any(trick in unquote(parts.path) for trick in ("..", "//", "\\", "%")):
        return False
    if _on(url, server_url):
        return plain and _PATH.fullmatch(parts.path) is not None
    return (
        urlsplit(server_url).hostname == "github.com"
        and parts.scheme == "https"
        and parts.netloc == parts.hostname
        and _IMAGES.fullmatch(parts.netloc) is not None
    )


def may_lead_to(url: str, server_url: str) -> bool:
    """Whether an attachment's address may redirect there."""
    if is_attachment(url, server_url):
        return True
    parts = urlsplit(url)
    return (
        urlsplit(server_url).hostname == "github.com"
        and parts.scheme == "https"
        and _STORAGE.fullmatch(parts.netloc) is not None
    )


class Attachments:
    """Fetches them from one forge."""

    def __init__(self, server_url: str, ca_bundle: Path | None) -> None:
        self._server_url = server_url
        self._trust = trust(ca_bundle)

    async def fetch(self, url: str, credentials: Credentials) -> bytes | None:
        """The file, at most MAX_ATTACHMENT bytes; None when this is no attachment's address.

        Our token goes to the forge alone, not to where it leads. Raises NotFound, or ForgeError.
        """
        if not is_attachment(url, self._server_url):
            return None
        try:
            async with (
                asyncio.timeout(SECONDS),
                httpx.AsyncClient(verify=self._trust, follow_redirects=False) as client,
            ):
                for _ in range(HOPS + 1):
                    headers = {"Accept-Encoding": "identity"}
                    if _on(url, self._server_url):
                        headers["Authorization"] = f"Bearer {credentials.token}"
                    async with client.stream("GET", url, headers=headers) as answer:
                        if answer.is_redirect:
                            url = urljoin(url, answer.headers.get("location", ""))
                            if not may_lead_to(url, self._server_url):
                                raise ForgeError("it leads to an address that is not the forge's")
                            continue
                        return await _body(answer)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as exc:
            raise ForgeError(f"it could not be fetched ({type(exc).__name__})") from exc
        raise ForgeError("it leads on and on")


async def _body(answer: httpx.Response) -> bytes:
    if answer.status_code != 200:
        raise NotFound(f"the forge answered {answer.status_code}")
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > MAX_ATTACHMENT:
            raise ForgeError(f"it is larger than {MAX_ATTACHMENT // 1_000_000} MB")
    return bytes(body)


def _on(url: str, server_url: str) -> bool:
    one, other = urlsplit(url), urlsplit(server_url)
    return (one.scheme, one.netloc) == (other.scheme, other.netloc)
