"""How a failed setup is reported."""

from patchwright.resolver import reply_texts
from patchwright.resolver.preparation.repo_setup import (
    MAX_OUTPUT_TAIL,
    tail_lines,
)


def test_a_setup_failure_is_reported_in_one_sentence() -> None:
    assert reply_texts.render_setup_failed("make", 2, "a\nb", {}) == ("`make` failed with exit code 2 (a b).")


def test_the_last_whole_lines_of_a_long_output_are_reported() -> None:
    error = "ERROR: No matching distribution found for nothing"
    assert tail_lines(f"Looking in links: {'x' * 400}\n{error}") == error
    assert tail_lines(f"{'word ' * 200}{error}").startswith("word word")
    assert tail_lines("x" * 400) == "x" * MAX_OUTPUT_TAIL
    assert tail_lines(error) == error
