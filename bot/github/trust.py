"""Whose certificates are believed when GitHub is asked."""

import ssl
from pathlib import Path

import httpx


def trust(ca_bundle: Path | None) -> ssl.SSLContext:
    """The authorities of this machine, and the operator's own beside them."""
    context = httpx.create_ssl_context()
    if ca_bundle is not None:
        context.load_verify_locations(ca_bundle)
    return context
