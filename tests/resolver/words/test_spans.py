"""Whose words a comment's are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolver.words.spans import closed, spans_of


@given(
    st.lists(
        st.sampled_from("<pre> </pre> <code> </code> <q> <blockquote> </blockquote> ` \n > x".split(" ")),
        max_size=40,
    ).map("".join)
)
def test_elements_leave_no_gaps(text: str) -> None:
    assert "".join(text[span.start : span.end] for span in spans_of(text)) == text


@given(st.text(alphabet="`~<!->@agent \n\t\r*1.", max_size=300))
def test_spans_cover_the_text_in_order_without_gaps(text: str) -> None:
    assert "".join(text[span.start : span.end] for span in spans_of(text)) == text


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("plain", ""),
        ("```\ncode\n```", ""),
        ("see\n```py\ncode", "\n```"),
        ("~~~\ncode\n```", "\n~~~"),
        ("`````\ncode\n```", "\n`````"),
        ("a `tick", ""),
        ("    indented", ""),
        ("<pre>\nlog", "\n</pre>"),
        ("<pre>\nlog\n</pre>", ""),
    ],
)
def test_a_block_of_code_that_is_left_open_is_closed(text: str, end: str) -> None:
    assert closed(text) == text + end
