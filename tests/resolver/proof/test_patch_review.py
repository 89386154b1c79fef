"""How the reply of the model that reviews a patch is read."""

import pytest

from patchwright.resolver.domain import ModelReview
from patchwright.resolver.proof.patch_review import MAX_REVIEW_LENGTH, parse_review


@pytest.mark.parametrize(
    ("text", "approved", "reasons"),
    [
        ("APPROVE", True, ""),
        ("APPROVE\nThe tests cover it.", True, "The tests cover it."),
        ("reject: it breaks b\n\nSee c.\n", False, "it breaks b\nSee c."),
        ("**REJECT** - it breaks b", False, "it breaks b"),
        ("**REJECT:**", False, ""),
        ("# `Approve`", True, ""),
        ("Approve. Fine.", True, "Fine."),
        ("APPROVE, fine.", True, "fine."),
        ("*APPROVE* : it works", True, "it works"),
        ("<!-- REJECT -->APPROVE", True, ""),
        ("REJECT\n" + "x" * (MAX_REVIEW_LENGTH + 1), False, "x" * MAX_REVIEW_LENGTH),
    ],
)
def test_a_review_begins_with_its_decision(text: str, approved: bool, reasons: str) -> None:
    assert parse_review(text, "m") == ModelReview(approved=approved, reasons=reasons, model="m")


@pytest.mark.parametrize("text", ["", "I APPROVE", "APPROVED", "Maybe\nREJECT"])
def test_a_reply_without_a_decision_is_no_review(text: str) -> None:
    assert parse_review(text, "m") is None
