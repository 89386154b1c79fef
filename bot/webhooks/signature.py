"""Whether a delivery comes from who holds the webhook's secret.

Source: docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries
"""

import hashlib
import hmac


def is_signed(body: bytes, claimed: bytes, secret: bytes) -> bool:
    """Whether `claimed`, the header x-hub-signature-256, is the signature of these very bytes.

    An empty secret is no secret: anybody can sign with it.
    """
    expected = b"sha256=" + hmac.digest(secret, body, hashlib.sha256).hex().encode()
    return bool(secret) and hmac.compare_digest(claimed, expected)
