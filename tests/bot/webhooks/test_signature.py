"""Only the signature of exactly the received bytes is valid."""

import hashlib
import hmac
import json

import pytest

from patchwright.bot.webhooks.receiver import has_valid_signature
from tests.bot.deliveries import LABELED, SECRET, signed


def test_githubs_own_example_signature_is_accepted() -> None:
    """Source: docs.github.com, "Validating webhook deliveries", "Testing the webhook payload validation"."""
    claimed = b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert has_valid_signature(b"Hello, World!", claimed, b"It's a Secret to Everybody")


HEADERS, BODY = signed("issues", LABELED)


@pytest.mark.parametrize(
    ("headers", "body", "secret"),
    [
        pytest.param({}, BODY, SECRET, id="no header at all"),
        pytest.param(HEADERS | {"x-hub-signature-256": ""}, BODY, SECRET, id="empty"),
        pytest.param(HEADERS | {"x-hub-signature-256": "sha256="}, BODY, SECRET, id="no digest"),
        pytest.param(HEADERS | {"x-hub-signature-256": "sha256=" + "0" * 64}, BODY, SECRET, id="wrong"),
        pytest.param(HEADERS | {"x-hub-signature-256": "sha256=\xff\ud800"}, BODY, SECRET, id="not ASCII"),
        pytest.param(HEADERS, json.dumps(json.loads(BODY), indent=1).encode(), SECRET, id="re-encoded"),
        pytest.param(HEADERS, BODY + b"\n", SECRET, id="one byte more"),
        pytest.param(HEADERS, BODY, "another", id="another secret"),
        pytest.param(*signed("issues", LABELED, secret=""), "", id="no secret is set"),
        pytest.param(
            {
                "x-github-event": "issues",
                "x-hub-signature": "sha1=" + hmac.new(SECRET.encode(), BODY, hashlib.sha1).hexdigest(),
            },
            BODY,
            SECRET,
            id="SHA-1 alone",
        ),
        pytest.param(
            HEADERS
            | {"x-hub-signature-256": "sha1=" + hmac.new(SECRET.encode(), BODY, hashlib.sha1).hexdigest()},
            BODY,
            SECRET,
            id="SHA-1 under the other name",
        ),
        pytest.param(HEADERS | {"x-hub-signature-256": "sha256=" + "0" * 64}, b"{", SECRET, id="not parsed"),
    ],
)
def test_a_delivery_without_a_valid_signature_is_rejected(
    headers: dict[str, str], body: bytes, secret: str
) -> None:
    claimed = headers.get("x-hub-signature-256", "").encode(errors="replace")
    assert not has_valid_signature(body, claimed, secret.encode())
