"""What is picked from a job's log, whatever it holds."""

import pytest

from resolver.ci.check_log import BLOCKS, LONGEST, MAX_LOG, Excerpt

STAMP = "2026-11-20T09:00:00.1234567Z "


def excerpt(*lines: str, pieces: int = 7, limit: int = MAX_LOG) -> str:
    heard, whole = Excerpt(), "\n".join(lines).encode()
    for at in range(0, len(whole), pieces):
        heard.feed(whole[at : at + pieces])
    return heard.text(limit)


def test_the_lines_that_lead_to_the_error_are_shown_and_the_cleaning_up_behind_it_is_not() -> None:
    before = [f"{STAMP}step {number}" for number in range(300)]
    failing = [
        f"{STAMP}\x1b[31mE   assert 1 == 2\x1b[0m",
        f"{STAMP}##[error]Process completed with exit code 1.",
    ]
    behind = [f"{STAMP}Cleaning up orphan processes {number}" for number in range(300)]
    assert excerpt(*before, *failing, *behind) == "\n".join(
        [
            "[lines 183 to 302 of 602]",
            *(f"step {number}" for number in range(182, 300)),
            "E   assert 1 == 2",
            "##[error]Process completed with exit code 1.",
        ]
    )


def test_an_error_that_was_named_long_before_the_end_is_listed_with_its_line() -> None:
    text = excerpt("gcc: fatal error: no input", *["compiling"] * 500, "##[error]make failed")
    assert text.startswith(
        "[lines that speak of errors, by number]\n1: gcc: fatal error: no input\n\n[lines 3"
    )


def test_a_log_without_a_mark_ends_with_its_last_lines() -> None:
    assert excerpt("one", "two") == "[lines 1 to 2 of 2]\none\ntwo"
    assert excerpt() == ""


@pytest.mark.parametrize("pieces", [1, 100_000])
def test_many_errors_are_shown_as_the_first_ones_and_the_last(pieces: int) -> None:
    text = excerpt(*(f"##[error]number {number}" for number in range(20)), pieces=pieces)
    shown = [number for number in range(20) if f"number {number}\n" in f"{text}\n"]
    assert shown == [0, 1, 2, 3, 18, 19]
    assert text.endswith(f"[{20 - BLOCKS} more errors in between]")


def test_no_length_of_a_line_or_of_the_whole_is_kept() -> None:
    heard = Excerpt()
    for _ in range(100):
        heard.feed(b"x" * 1_000_000)
    assert len(heard._rest) == LONGEST
    heard.feed(b"\n##[error]it broke\n")
    text = heard.text()
    assert f"({LONGEST:,} bytes)" in text and text.endswith("##[error]it broke")
    assert len(text) < 1_000


def test_what_is_shown_fits_and_the_error_itself_is_always_there() -> None:
    lines = [f"{'error ' * 70}{number}" for number in range(1_000)]
    text = excerpt(*lines, "##[error]the end", pieces=9_999)
    assert len(text) < MAX_LOG + 200
    assert text.endswith("##[error]the end")


def test_progress_bars_colours_titles_and_broken_bytes_leave_plain_lines() -> None:
    heard = Excerpt()
    heard.feed(b"\xef\xbb\xbf2026-11-20T09:00:00.1Z 10%\r50%\rdone\r\n\x1b]0;title\x07ok \xff\x1b[2K\n")
    heard.feed(b"\x1b]8;;never closed\n")
    assert heard.text() == "[lines 1 to 3 of 3]\ndone\nok \ufffd\n"
