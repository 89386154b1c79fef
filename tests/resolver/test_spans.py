"""Whose words a comment's are."""

from hypothesis import given
from hypothesis import strategies as st

from resolver.spans import spans_of


@given(st.text(alphabet="`~<!->@agent \n\t\r*1.", max_size=300))
def test_spans_cover_the_text_in_order_without_gaps(text: str) -> None:
    assert "".join(text[span.start : span.end] for span in spans_of(text)) == text
