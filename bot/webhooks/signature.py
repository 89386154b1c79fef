"""Verifies webhook signatures.

Source: docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries
"""

import hashlib
import hmac


def has_valid_signature(body: bytes, signature_header: bytes, secret: bytes) -> bool:
    """Returns True if the header x-hub-signature-256 contains the signature of exactly these bytes.

    Returns False if the secret is empty, because anyone could sign with an empty secret.
    """
    expected = b"sha256=" + hmac.digest(secret, body, hashlib.sha256).hex().encode()
    return bool(secret) and hmac.compare_digest(signature_header, expected)
