"""Splitting of Markdown into spans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchwright.resolver.text.markdown import close_code_blocks, parse_spans


@given(
    st.lists(
        st.sampled_from("<pre> </pre> <code> </code> <q> <blockquote> </blockquote> ` \n > x".split(" ")),
        max_size=40,
    ).map("".join)
)
def test_html_elements_leave_no_gaps(text: str) -> None:
    assert "".join(text[span.start : span.end] for span in parse_spans(text)) == text


@given(st.text(alphabet="`~<!->@agent \n\t\r*1.", max_size=300))
def test_spans_cover_the_text_in_order_without_gaps(text: str) -> None:
    assert "".join(text[span.start : span.end] for span in parse_spans(text)) == text


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
def test_an_unclosed_code_block_is_closed(text: str, end: str) -> None:
    assert close_code_blocks(text) == text + end
