"""TLS settings for requests to GitHub."""

import functools
import os
import ssl
from pathlib import Path

import httpx


def create_ssl_context(ca_bundle: Path | None) -> ssl.SSLContext:
    """Returns an SSL context that trusts the certificate authorities of the system, and those in the file
    `ca_bundle`. Reading a file takes 40 ms, so all clients share a context until one of the files changes.
    """
    system = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    changed_at = tuple(_get_change_time(path) for path in (ca_bundle, *system))
    return _read_authorities(ca_bundle, system, changed_at)


def _get_change_time(path: Path | str | None) -> int | None:
    try:
        return os.stat(path).st_mtime_ns if path else None
    except OSError:
        return None


@functools.lru_cache(maxsize=8)
def _read_authorities(ca_bundle: Path | None, *_: object) -> ssl.SSLContext:
    context = httpx.create_ssl_context()
    if ca_bundle is not None:
        context.load_verify_locations(ca_bundle)
    return context
