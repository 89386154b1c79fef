"""Formats the output of a run as text for terminals, pipes and CI logs, and its outcome as JSON."""

import json
import os
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from patchwright.resolver.cost import cost_fields
from patchwright.resolver.descriptions import label_verdict
from patchwright.resolver.domain import InputRequired, Outcome, Published, Reported, Usage, Verdict
from patchwright.resolver.rendering import filters
from patchwright.resolver.rendering.filters import compare_outcomes, format_test_counts, patch_test_label

MAX_LISTED = 10  # tests, or other items, in each list


def strip_control_chars(text: str) -> str:
    """Removes control characters from untrusted text. They could move the cursor, change colors or change the
    window title.
    """
    return "".join(
        char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs")
    )


def end_sentence(text: str) -> str:
    """Adds a full stop to a text that ends with a word. Adds none after code, so that people can copy it."""
    return f"{text}." if text and (text[-1].isalnum() or text[-1] in "'\")") else text


def wrap_text(text: str, width: int = 78) -> str:
    """Wraps long lines between words. Does not wrap lists or tables, so that people can copy the names in
    them.
    """
    return "\n".join(
        line if line.startswith(("- ", "|")) else textwrap.fill(line, width, break_long_words=False)
        for line in text.split("\n")
    )


def outcome_json(
    run: str, outcome: Outcome | None, verdict: Verdict | None, usage: Usage, **extra: Any
) -> dict[str, Any]:
    """Returns the outcome as a JSON object. Missing values are null. For a local run, `outcome` is None."""
    reason = getattr(outcome, "explanation", None) or getattr(outcome, "reason", None)
    return {
        "outcome": outcome.kind if outcome else "completed",
        "verdict": verdict.kind if verdict else None,
        "reason": reason or (verdict.reason if verdict else None),
        "pull_request": outcome.url if isinstance(outcome, Published) else None,
        "draft": getattr(outcome, "draft", None),
        "comment": (outcome.url or None) if isinstance(outcome, Reported | InputRequired) else None,
        "question": getattr(outcome, "question", None),
        "call": getattr(getattr(outcome, "confirmation", None), "call", None),
        "branch": getattr(outcome, "branch", None),
        "fail_to_pass": list(verdict.fail_to_pass) if verdict else [],
        "pass_to_fail": list(verdict.pass_to_fail) if verdict else [],
        "conditions": [each.model_dump(mode="json") for each in verdict.conditions] if verdict else [],
        "cost_usd": None,
        "cost_usd_at_least": None,
        **cost_fields("cost_usd", usage.cost),
        "tokens": usage.tokens,
        "steps": usage.steps,
        "seconds": round(usage.seconds, 1),
        "run": run,
        **extra,
    }


def print_json(value: dict[str, Any]) -> None:
    """Prints the object on one line of standard output."""
    print_stdout(json.dumps(value, ensure_ascii=True))


def print_stdout(text: str) -> None:
    with ignore_closed_pipe():
        print(text)


@contextmanager
def ignore_closed_pipe() -> Iterator[None]:
    """Flushes standard output after the `with` block. If its reader has closed the pipe, as `| head` does, discards
    the rest of the output, so that the command can finish its work.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Without this line, Python would print another error when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def describe_usage(usage: Usage) -> str:
    """Returns the time, steps, tokens and cost of a run in one line."""
    steps = f"{usage.steps} step{'' if usage.steps == 1 else 's'}"
    duration, cost = filters.format_duration(usage.seconds), filters.format_usage(usage)
    return ", ".join(filter(None, (duration, steps, f"{usage.tokens:,} tokens", cost)))


def verdict_line(verdict: Verdict) -> str:
    """Returns the verdict and its reason in one line."""
    label = label_verdict(verdict.kind, documentation_only=verdict.documentation_only)
    return f"verdict: {label}. {verdict.reason}"


def tests_table(verdict: Verdict) -> str:
    """Returns a small text table that compares the test runs before and after the patch."""
    if verdict.before is None or verdict.after is None:
        return "no test results"
    rows = [("", "before", "after")]
    if verdict.before.results or verdict.after.results:
        outcomes = compare_outcomes(verdict.before, verdict.after)
        rows += [(label, str(old), str(new)) for label, old, new in outcomes]
    else:
        rows.append(("exit code", str(verdict.before.exit_code), str(verdict.after.exit_code)))
    table = "\n".join(f"  {name:10} {old:>7} {new:>7}" for name, old, new in rows)
    if (at_base := verdict.new_tests_at_base) and (after := verdict.after.results):
        passing = format_test_counts(after[test] for test in at_base if test in after)
        label = f"{patch_test_label(verdict)}s"
        table += f"\n  {label}: {format_test_counts(at_base.values())} before; now {passing}"
    lists = [
        ("now passing", verdict.fail_to_pass),
        ("now failing", verdict.pass_to_fail),
        ("flaky", verdict.flaky),
        ("please check", tuple(condition.sentence for condition in verdict.conditions)),
    ]
    return "\n".join([table, *(line for title, items in lists for line in _list_lines(title, items))])


def _list_lines(title: str, items: Sequence[str]) -> list[str]:
    lines = [f"  {title}: {strip_control_chars(item)}" for item in items[:MAX_LISTED]]
    return [*lines, f"  {title}: and {len(items) - MAX_LISTED} more"] if len(items) > MAX_LISTED else lines
