"""The progress display on a terminal and in a pipe."""

import io

from patchwright.evaluation.controls import ControlResult
from patchwright.evaluation.instances import Instance
from patchwright.evaluation.progress import ProgressDisplay
from tests.evaluation.sample_results import BROKEN_CONTROL, RIGHT, WRONG, make_attempt


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def play(display: ProgressDisplay) -> None:
    """Shows one broken, one resolved and one failed instance."""
    resolved, failed = (
        make_attempt("small", 0, ("fixed", RIGHT, None)),
        make_attempt("small", 1, ("fixed", WRONG, "misread_issue")),
    )
    for result in (resolved, failed):
        display.start(
            Instance(
                id=result.instance,
                repo="a/b",
                url="u",
                base_commit="c",
                problem="p",
                gold_patch="",
                test_patch="",
            )
        )
    display.show_control(BROKEN_CONTROL)
    display.show_control(ControlResult(instance=resolved.instance))
    display.show_attempt(resolved)
    display.show_attempt(failed)
    display.close()


def test_a_pipe_gets_one_line_for_each_event() -> None:
    stream = io.StringIO()
    display = ProgressDisplay(stream, {}, 4)
    play(display)
    lines = stream.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "left out matplotlib__matplotlib-9",
        "resolved django__django-1000-small-1",
        "failed   django__django-1001-small-1",
    ]
    assert "misread issue, 3 min 29 s (2 of 4, 1 resolved, 1 failed, 1 left out, $0.0490, about" in lines[-1]
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_redraws_the_status() -> None:
    stream = Terminal()
    play(ProgressDisplay(stream, {"TERM": "xterm", "NO_COLOR": "1"}, 4))
    text = stream.getvalue()
    assert "0 of 4, 0 resolved, 0 failed, $0.00; working on django__django-1000" in text
    assert text.endswith("\r\x1b[K")
    assert "\x1b[3" not in text  # no color
    assert "\x1b[32m" in _with_color()


def _with_color() -> str:
    stream = Terminal()
    play(ProgressDisplay(stream, {"TERM": "xterm"}, 4))
    return stream.getvalue()


def test_quiet_means_no_output() -> None:
    stream = Terminal()
    play(ProgressDisplay(stream, {"TERM": "xterm"}, 4, quiet=True))
    assert stream.getvalue() == ""
