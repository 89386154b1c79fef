"""Prints the result of a run on a local repository, as text or as JSON."""

import re
import sys
from typing import TYPE_CHECKING, Any

from patchwright.bot.terminal.exit_codes import ERROR
from patchwright.bot.terminal.output import (
    end_sentence,
    ignore_closed_pipe,
    outcome_json,
    print_json,
    print_stderr,
    print_stdout,
    strip_control_chars,
    tests_table,
    verdict_line,
    wrap_text,
)
from patchwright.resolver.activity.finish_checks import describe_open_points, last_finish
from patchwright.resolver.domain import Job, Patch
from patchwright.resolver.events import Trajectory
from patchwright.resolver.tool_actions.control_actions import Finish

if TYPE_CHECKING:  # It is imported when a run starts.
    from patchwright.resolver.pipeline.publish import Attempt

# Lines of text in a diff begin with one of " +-\\@", so they never look like these headers.
_NEW_BINARY_FILE = re.compile(
    r"^diff --git (.+)\nnew file mode \d+\nindex .+\nGIT binary patch$", re.MULTILINE
)
_BINARY_HUNK = re.compile(r"^GIT binary patch\n(?:(?!diff --git ).*\n?)*?(?=diff --git |\Z)", re.MULTILINE)


def has_model_failed(attempt: "Attempt") -> bool:
    """Returns True if a model error ended the run before the agent changed anything, so that there is no result."""
    return attempt.agent_stopped.reason == "error" and attempt.patch.is_empty


def print_attempt_json(
    job: Job, attempt: "Attempt", trajectory: Trajectory, patch_file: str | None, error: str | None
) -> None:
    finish, stopped = last_finish(trajectory), attempt.agent_stopped
    extra: dict[str, Any] = {
        "summary": finish.model_dump(include={"cause", "change", "testing"}) if finish else None,
        "patch": attempt.patch.diff.decode("utf-8", errors="replace"),
        "patch_file": patch_file,
        "error": error,
        "stopped": None if stopped.reason == "finished" else stopped.model_dump(include={"reason", "detail"}),
        "excluded_changes": list(attempt.excluded_changes),
        "new_binary_files": new_binary_files(_decode_diff(attempt.patch)),
        "open_points": list(attempt.open_points),
    }
    usage = trajectory.usage()
    if has_model_failed(attempt):  # The verdict `empty` would say that the agent found nothing to change.
        result = outcome_json(job.id, None, None, usage, **extra)
        print_json(result | {"outcome": "error", "kind": "ModelError", "exit_code": ERROR})
        return
    print_json(outcome_json(job.id, None, attempt.verdict, usage, **extra))


def print_attempt(attempt: "Attempt", trajectory: Trajectory) -> None:
    """Prints the verdict, the agent's summary and the patch. What a person has to know goes to standard error."""
    diff, finish, stopped = _decode_diff(attempt.patch), last_finish(trajectory), attempt.agent_stopped
    if has_model_failed(attempt):
        print_stdout("no result: the model failed before the agent changed the code")
        return
    print_stdout(strip_control_chars(verdict_line(attempt.verdict)))
    if stopped.reason == "error":
        step = len(trajectory.replies())
        detail = strip_control_chars(end_sentence(stopped.detail))
        print_stderr(
            f"NOTICE: The model failed after step {step}. {detail} The verdict is about the changes until then."
        )
    elif stopped.reason != "finished":
        print_stderr(
            f"NOTICE: The agent stopped early ({stopped.reason}). {strip_control_chars(stopped.detail)}"
        )
    print_stdout(tests_table(attempt.verdict))
    print_stdout(
        wrap_text(strip_control_chars(_summary_text(finish))) if finish else "the agent gave no summary"
    )
    for sentence in (
        *describe_open_points(attempt.open_points, attempt.verdict),
        *(f"Left out of the patch: {change}" for change in attempt.excluded_changes),
        *(f"The patch adds the binary file {name}" for name in new_binary_files(diff)),
    ):
        print_stderr(f"NOTICE: {strip_control_chars(sentence)}")
    with ignore_closed_pipe():
        sys.stdout.buffer.write(_printable_diff(diff).encode("utf-8", errors="surrogateescape"))


def _decode_diff(patch: Patch) -> str:
    return patch.diff.decode("utf-8", errors="surrogateescape")


def _summary_text(finish: Finish) -> str:
    lines = [f"cause: {finish.cause}", f"change: {finish.change}", f"testing: {finish.testing}"]
    return "\n".join([*lines, *(f"please check: {point}" for point in finish.to_check)])


def _printable_diff(diff: str) -> str:
    """Returns the diff for printing. If the output is a terminal, removes control characters and the content of
    binary files; otherwise changes nothing.
    """
    return strip_control_chars(hide_binary_hunks(diff)) if sys.stdout.isatty() else diff


def new_binary_files(diff: str) -> list[str]:
    r"""Returns the paths of the binary files that the patch adds. Bytes that are not UTF-8 are shown as
    `\xNN`.
    """
    # The header repeats the path: "a/PATH b/PATH", or both parts in quotes.
    halves = (header[: len(header) // 2] for header in _NEW_BINARY_FILE.findall(diff))
    return [_unquote(half).removeprefix("a/") for half in halves]


def _unquote(path: str) -> str:
    """Decodes a path that git has quoted like a string in C. Other paths are returned unchanged."""
    if not path.startswith('"'):
        return path
    escaped = path[1:-1].encode("utf-8", "surrogateescape")
    return escaped.decode("unicode_escape").encode("latin-1").decode("utf-8", "backslashreplace")


def hide_binary_hunks(diff: str) -> str:
    """Replaces the encoded content of binary files with a note. The result cannot be applied."""
    return _BINARY_HUNK.sub("(binary patch not shown)\n", diff)
