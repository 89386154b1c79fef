"""TLS settings for requests to GitHub."""

import functools
import ssl
from pathlib import Path

import httpx


def create_ssl_context(ca_bundle: Path | None) -> ssl.SSLContext:
    """Returns an SSL context that trusts the certificate authorities of the system, and those in the file
    `ca_bundle`. Reading the system's takes 40 ms, so all clients share a context until `ca_bundle` changes.
    """
    return _read_authorities(ca_bundle, ca_bundle and ca_bundle.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _read_authorities(ca_bundle: Path | None, _changed_at: int | None) -> ssl.SSLContext:
    context = httpx.create_ssl_context()
    if ca_bundle is not None:
        context.load_verify_locations(ca_bundle)
    return context
