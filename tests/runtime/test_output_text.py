import tracemalloc

import pytest

from patchwright.runtime.output_text import CapturedOutput, OutputCapture, clip, clip_captured, decode_output


def captured(data: bytes, keep: int, piece: int = 7) -> CapturedOutput:
    capture = OutputCapture(keep)
    for at in range(0, len(data), piece):
        capture.add(data[at : at + piece])
    return capture.take()


def test_a_short_text_is_unchanged() -> None:
    assert clip("a\nb\n", limit=4) == "a\nb\n"


def test_a_clipped_text_keeps_whole_lines_and_names_the_missing_ones() -> None:
    text = "".join(f"line {n}\n" for n in range(1, 101))
    assert clip(text, limit=40) == (
        "line 1\nline 2\n[... lines 3-98 of 100 left out: 761 characters ...]\nline 99\nline 100\n"
    )


def test_a_text_without_a_last_newline_is_counted_the_same() -> None:
    assert "lines 3-8 of 10" in clip("\n".join(["x" * 9] * 10), limit=40)


def test_a_line_over_the_limit_is_cut_with_a_note() -> None:
    assert clip("a" * 50 + "b" * 50, limit=10) == (
        "aaaaa\n[... from inside line 1 to inside line 1 of 1 left out: 90 characters ...]\nbbbbb"
    )


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_capture_keeps_head_and_tail_and_counts_the_rest(piece: int) -> None:
    data = b"".join(b"%03d\n" % n for n in range(100))
    result = captured(data, keep=40, piece=piece)
    assert result == CapturedOutput(head=data[:20], tail=data[-20:], cut_bytes=360, cut_lines=90)


def test_a_capture_that_fits_is_whole() -> None:
    result = captured(b"0123456789" * 2, keep=20)
    assert (result.head + result.tail, result.cut_bytes) == (b"0123456789" * 2, 0)


def test_dropped_lines_are_counted_in_the_note() -> None:
    data = b"".join(b"%07d\n" % n for n in range(1, 1001))
    assert clip_captured(captured(data, keep=160), limit=32) == (
        "0000001\n0000002\n[... lines 3-998 of 1,000 left out: 7,968 characters ...]\n0000999\n0001000\n"
    )


def test_omitted_output_is_reported_even_if_little_is_left() -> None:
    progress = b"".join(b"\r%d%%" % n for n in range(10_000)) + b"\ndone\n"
    text = clip_captured(captured(progress, keep=1000), limit=100)
    assert "left out" in text and text.endswith("9999%\ndone\n")


def test_endless_output_takes_bounded_memory() -> None:
    piece = b"x" * 4095 + b"\n"
    tracemalloc.start()
    capture = OutputCapture()
    for _ in range(20_000):  # 80 MB; unbounded growth would show
        capture.add(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    assert capture.take().cut_lines == 20_000 - 256


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07text \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "text link"),
        (b"\x1b]0;never closed\nnext line", "\nnext line"),
        (b"\x1b(B\x1b=\x1bM.", "."),
        (b"10%\r50%\r100%\nend\r\n", "100%\nend\n"),
        (b"b\x08bo\x08ol\x08ld\x08d _\x08x", "bold x"),
        (b"\x08\x08a\x07\x0b", "a"),
        ("é\xff".encode("latin-1") + b"\0", "\ufffd\ufffd\ufffd"),
        ("tab\tand ü".encode(), "tab\tand ü"),
    ],
)
def test_control_codes_are_applied_or_removed(data: bytes, text: str) -> None:
    assert decode_output(data) == text


@pytest.mark.parametrize(
    "data", [b"\x08" * 500_000, b"a" * 500_000 + b"\x08" * 500_000, b"\x1b]" * 500_000, b"\r" * 500_000]
)
def test_hostile_control_codes_cost_no_time(data: bytes) -> None:
    decode_output(data)  # the suite's timeout would catch it
