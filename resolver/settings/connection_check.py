"""Checks whether a server listens at a URL from the settings."""

import asyncio
import urllib.request
from contextlib import suppress
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


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, UnicodeError):
        return "the host name is not valid"
    return getattr(error, "strerror", None) or str(error)


def _has_proxy(scheme: str, host: str) -> bool:
    return scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)
