"""Extraction of the relevant part of a job's log."""

import pytest

from patchwright.resolver.ci.log_excerpt import MAX_BLOCKS, MAX_EXCERPT, MAX_LINE_BYTES, LogExcerpt

STAMP = "2026-11-20T09:00:00.1234567Z "


def excerpt(*lines: str, chunk_size: int = 7, limit: int = MAX_EXCERPT) -> str:
    log, content = LogExcerpt(), "\n".join(lines).encode()
    for offset in range(0, len(content), chunk_size):
        log.feed(content[offset : offset + chunk_size])
    return log.render(limit)


def test_the_excerpt_shows_lines_before_the_error_and_no_cleanup_after_it() -> None:
    before = [f"{STAMP}step {number}" for number in range(300)]
    error_lines = [
        f"{STAMP}\x1b[31mE   assert 1 == 2\x1b[0m",
        f"{STAMP}##[error]Process completed with exit code 1.",
    ]
    after = [f"{STAMP}Cleaning up orphan processes {number}" for number in range(300)]
    assert excerpt(*before, *error_lines, *after) == "\n".join(
        [
            "[lines 183 to 302 of 602]",
            *(f"step {number}" for number in range(182, 300)),
            "E   assert 1 == 2",
            "##[error]Process completed with exit code 1.",
        ]
    )


def test_an_early_error_is_listed_with_its_line_number() -> None:
    text = excerpt("gcc: fatal error: no input", *["compiling"] * 500, "##[error]make failed")
    assert text.startswith(
        "[lines that mention errors, by number]\n1: gcc: fatal error: no input\n\n[lines 3"
    )


def test_a_log_without_an_error_marker_shows_its_last_lines() -> None:
    assert excerpt("one", "two") == "[lines 1 to 2 of 2]\none\ntwo"
    assert excerpt() == ""


@pytest.mark.parametrize("chunk_size", [1, 100_000])
def test_many_errors_are_reduced_to_the_first_and_last_ones(chunk_size: int) -> None:
    text = excerpt(*(f"##[error]number {number}" for number in range(20)), chunk_size=chunk_size)
    shown = [number for number in range(20) if f"number {number}\n" in f"{text}\n"]
    assert shown == [0, 1, 2, 3, 18, 19]
    assert text.endswith(f"[{20 - MAX_BLOCKS} more errors in between]")


def test_memory_is_bounded_for_long_lines_and_long_logs() -> None:
    log = LogExcerpt()
    for _ in range(100):
        log.feed(b"x" * 1_000_000)
    assert len(log._partial_line) == MAX_LINE_BYTES
    log.feed(b"\n##[error]it broke\n")
    text = log.render()
    assert f"({MAX_LINE_BYTES:,} bytes)" in text and text.endswith("##[error]it broke")
    assert len(text) < 1_000


def test_the_excerpt_fits_the_limit_and_contains_the_error() -> None:
    lines = [f"{'error ' * 70}{number}" for number in range(1_000)]
    text = excerpt(*lines, "##[error]the end", chunk_size=9_999)
    assert len(text) < MAX_EXCERPT + 200
    assert text.endswith("##[error]the end")


def test_progress_bars_colors_titles_and_invalid_bytes_become_plain_lines() -> None:
    log = LogExcerpt()
    log.feed(b"\xef\xbb\xbf2026-11-20T09:00:00.1Z 10%\r50%\rdone\r\n\x1b]0;title\x07ok \xff\x1b[2K\n")
    log.feed(b"\x1b]8;;never closed\n")
    assert log.render() == "[lines 1 to 3 of 3]\ndone\nok \ufffd\n"
