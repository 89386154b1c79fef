"""Downloads files that are attached to an issue or pull request, only from the forge's own addresses.

The URL of a file comes from untrusted text, so it must have the exact form of an attachment's URL on the
forge. Redirects may lead only to the forge or its storage. The size, the number of redirects, and the time
are limited.
"""

import asyncio
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import httpx

from patchwright.bot.github.tls import create_ssl_context
from patchwright.resolver.domain import Credentials
from patchwright.resolver.errors import ForgeError, NotFound
from patchwright.resolver.forge import MAX_ATTACHMENT

TIMEOUT_SECONDS = 60.0  # seconds for one file, from the first byte to the last
MAX_REDIRECTS = 3  # GitHub redirects a download once

_ATTACHMENT_PATH = re.compile(
    r"/user-attachments/(assets|files)/[\w./%-]+|/[\w.-]+/[\w.-]+/(assets|files)/\d+/[\w./%-]+", re.ASCII
)
_IMAGE_HOST = re.compile(r"(private-)?user-images\.githubusercontent\.com")
# The storage that github.com redirected to in 2026. The pattern matches the storage of every region.
_STORAGE_HOST = re.compile(
    r"github-production-(user-asset|repository-file|repository-image)-[0-9a-f]{6}\.s3(\.[a-z0-9-]+)?\.amazonaws\.com"
    r"|objects\.githubusercontent\.com"
)


def is_attachment(url: str, server_url: str) -> bool:
    """Returns whether this is the URL of an attachment on the forge at `server_url`."""
    try:
        parts = urlsplit(url)
        is_plain = (parts.username, parts.password, parts.port) == (None, None, urlsplit(server_url).port)
    except ValueError:  # the URL has an invalid port or IP address
        return False
    if any(part in unquote(parts.path) for part in ("..", "//", "\\", "%")):
        return False
    if is_same_origin(url, server_url):
        return is_plain and _ATTACHMENT_PATH.fullmatch(parts.path) is not None
    return (
        urlsplit(server_url).hostname == "github.com"
        and parts.scheme == "https"
        and parts.netloc == parts.hostname
        and _IMAGE_HOST.fullmatch(parts.netloc) is not None
    )


def is_allowed_redirect(url: str, server_url: str) -> bool:
    """Returns whether a download may follow a redirect to this URL."""
    if is_attachment(url, server_url):
        return True
    parts = urlsplit(url)
    return (
        urlsplit(server_url).hostname == "github.com"
        and parts.scheme == "https"
        and _STORAGE_HOST.fullmatch(parts.netloc) is not None
    )


class AttachmentDownloader:
    """Downloads attachments from one forge."""

    def __init__(self, server_url: str, ca_bundle: Path | None) -> None:
        self._server_url = server_url
        self._ssl_context = create_ssl_context(ca_bundle)

    async def fetch(self, url: str, credentials: Credentials) -> bytes | None:
        """Returns the content of the file, or None if the URL does not belong to an attachment.

        Sends the token to the forge only, not to redirect targets. Raises NotFound, or ForgeError if the
        download fails or the file has more than MAX_ATTACHMENT bytes.
        """
        if not is_attachment(url, self._server_url):
            return None
        return await download(
            url,
            self._ssl_context,
            may_redirect_to=lambda target: is_allowed_redirect(target, self._server_url),
            token_origin=self._server_url,
            token=credentials.token,
        )


async def download(
    url: str,
    ssl_context: ssl.SSLContext,
    *,
    may_redirect_to: Callable[[str], bool],
    token_origin: str = "",
    token: str = "",
) -> bytes:
    """Returns the content of a URL. Sends the token only to `token_origin`, and follows only the redirects that are
    allowed.

    Raises NotFound, or ForgeError if the download fails or has more than MAX_ATTACHMENT bytes.
    """
    try:
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            httpx.AsyncClient(verify=ssl_context, follow_redirects=False) as client,
        ):
            for _ in range(MAX_REDIRECTS + 1):
                headers = {"Accept-Encoding": "identity"}
                if token and is_same_origin(url, token_origin):
                    headers["Authorization"] = f"Bearer {token}"
                async with client.stream("GET", url, headers=headers) as response:
                    if response.is_redirect:
                        url = urljoin(url, response.headers.get("location", ""))
                        if not may_redirect_to(url):
                            raise ForgeError("the download redirects to an address that is not allowed")
                        continue
                    return await _read_body(response)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as exc:
        raise ForgeError(f"the download failed ({type(exc).__name__})") from exc
    raise ForgeError("too many redirects")


async def _read_body(response: httpx.Response) -> bytes:
    if response.status_code != 200:
        raise NotFound(f"the server returned {response.status_code}")
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_ATTACHMENT:
            raise ForgeError(f"the file is larger than {MAX_ATTACHMENT // 1_000_000} MB")
    return bytes(body)


def is_same_origin(url: str, server_url: str) -> bool:
    """Returns whether both URLs have the same scheme, host and port."""
    one, other = urlsplit(url), urlsplit(server_url)
    return (one.scheme, one.netloc) == (other.scheme, other.netloc)
