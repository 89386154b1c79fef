"""TLS settings for requests to GitHub."""

import ssl
from pathlib import Path

import httpx


def create_ssl_context(ca_bundle: Path | None) -> ssl.SSLContext:
    """Returns an SSL context that trusts the certificate authorities of the system, and those in the file
    `ca_bundle`.
    """
    context = httpx.create_ssl_context()
    if ca_bundle is not None:
        context.load_verify_locations(ca_bundle)
    return context
