"""Checks whether a server listens at a URL from the settings."""

import asyncio
import json
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


async def is_key_rejected(url: str, key: str, model: str, ca_bundle: Path | None) -> bool:
    """Returns True if the API at this URL rejects the key with status 401.

    Some endpoints reject only the list of models, so a short request to the model has to fail in the same way.
    """
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    if is_anthropic := urlsplit(url).hostname == "api.anthropic.com":
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    message = {"role": "user", "content": "Hi"}
    body = json.dumps({"model": model, "messages": [message], "max_tokens": 1}).encode()
    for path, data in (("models", None), ("chat/completions", body))[: 1 if is_anthropic else 2]:
        request = urllib.request.Request(f"{url.rstrip('/')}/{path}", data, headers)  # noqa: S310  # the operator's URL
        if await asyncio.to_thread(_read_status, request, ca_bundle) != 401:
            return False
    return True


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would send the key to another host."""

    def redirect_request(self, *_: object) -> None:
        return None


def _read_status(request: urllib.request.Request, ca_bundle: Path | None) -> int:
    """Returns the HTTP status code of the response, or 0 if there is none."""
    https = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_bundle))
    try:
        with urllib.request.build_opener(_NoRedirects, https).open(
            request, timeout=CONNECT_SECONDS
        ) as response:
            return int(response.status)
    except urllib.error.HTTPError as exc:
        return exc.code
    except (OSError, ValueError, HTTPException):
        return 0


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
