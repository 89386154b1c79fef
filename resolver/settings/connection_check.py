"""Checks whether a server listens at a URL from the settings."""

import asyncio
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

CONNECT_SECONDS = 5.0


async def find_connection_problem(url: str) -> str | None:
    """Returns a clause such as `localhost:8000 cannot be reached (connection refused)` if nothing listens at the
    URL, or if its host is unknown. Otherwise returns None.

    Does nothing if a proxy is used for this URL. A slow server is no problem. The clause does not repeat the
    whole URL, because it may contain a password.
    """
    parts = urlsplit(url)
    if not parts.hostname or _has_proxy(parts.scheme, parts.hostname):
        return None
    host = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except TimeoutError:
        return None
    except (OSError, ValueError) as exc:
        return f"{host} cannot be reached ({_reason(exc)})"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return None


async def needs_v1(url: str, ca_bundle: Path | None) -> bool:
    """Returns True if the API of an OpenAI-compatible endpoint is not at this URL without a path, but below `/v1`."""
    if urlsplit(url).path.strip("/"):
        return False
    urls = (f"{url.rstrip('/')}{path}/models" for path in ("", "/v1"))
    is_here, is_below = await asyncio.gather(*(asyncio.to_thread(_has_api, one, ca_bundle) for one in urls))
    return is_below and not is_here


def _has_api(url: str, ca_bundle: Path | None) -> bool:
    """Returns True if the URL responds with JSON, or requires a key."""
    context = ssl.create_default_context(cafile=ca_bundle)
    try:
        with urllib.request.urlopen(url, timeout=CONNECT_SECONDS, context=context) as response:  # noqa: S310  # the operator's URL
            return "json" in str(response.headers.get_content_type())
    except urllib.error.HTTPError as exc:
        return exc.code in (401, 403)
    except (OSError, ValueError, HTTPException):
        return False


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, UnicodeError):
        return "the host name is not valid"
    return getattr(error, "strerror", None) or str(error)


def _has_proxy(scheme: str, host: str) -> bool:
    return scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)
