"""Formats values for texts that people read: untrusted text, costs, durations and sizes. All functions are pure, and
each public one is a filter of the templates.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from patchwright.resolver.conditions import Condition
from patchwright.resolver.cost import format_usd
from patchwright.resolver.domain import TestRun, TestStatus, Usage, Verdict
from patchwright.runtime.output_text import clip_line

_ZERO_WIDTH = "\u200b"
_ACTIVE_MARKUP = re.compile(r"@(?=\w)|<(?=[\w/!?])|!(?=\[)|#(?=\d)|\bGH-(?=\d)")
_CLOSING_KEYWORD = re.compile(
    r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)(?=:?\s+(?:#|GH-|https?://|[\w.-]+/))", re.I
)


def neutralize(text: str) -> str:
    """Makes untrusted text harmless. When GitHub renders the result, it notifies nobody, closes no issue and
    loads no image.

    Inserts a zero-width space after active characters and keywords (`@name`, `#12`, `<tag`, `![`, a closing
    keyword). Unlike a backslash, this space is invisible and works both inside and outside of code.
    """
    return _CLOSING_KEYWORD.sub(
        lambda match: match[0] + _ZERO_WIDTH, _ACTIVE_MARKUP.sub(lambda match: match[0] + _ZERO_WIDTH, text)
    )


_MARKDOWN_SYNTAX = re.compile(
    r"(?P<code>`[^`]*`)"
    r"|(?<![\w./*~+-])(?P<name>[\w./*~+-]*[*_](?:[\w./*~+-]*[\w*/~+-])?)"
    r"|(?P<mark>[`~<])"
)


def escape_markdown(text: str) -> str:
    """Escapes one of Patchwright's own sentences for use in Markdown. Names such as `__init__.py` and
    `*.lock` become inline code.
    """
    return _MARKDOWN_SYNTAX.sub(_escape_match, neutralize(text))


def _escape_match(match: re.Match[str]) -> str:
    if match["name"]:
        return f"`{match['name']}`"
    return match["code"] or f"\\{match['mark']}"


def code_block(text: str, language: str = "") -> str:
    """Formats text as a fenced code block. The text cannot end the block."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def inline_code(text: str) -> str:
    """Formats text as inline code on one line. The text cannot end the inline code."""
    return f"`{clip_line(text).replace('`', chr(39))}`"


def toml_string(text: str) -> str:
    """Formats a text as a string in a TOML file."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def surround(text: str, prefix: str, suffix: str) -> str:
    """Returns the text with a prefix and a suffix."""
    return f"{prefix}{text}{suffix}"


MAX_LEAD_WORDS = 40  # in one sentence
MAX_WORDS_TOGETHER = 30  # in several sentences
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(])")
_NO_SENTENCE_END = re.compile(r"(?:\b[A-Za-z]|[\s(]\d+|\be\.g|\bi\.e|\betc|\bvs|\bcf)\.$")
_LIST_ITEM = re.compile(r"([.:;,]?)\s*\n\s*(?:[-*]|\d+[.)])\s+")


def first_sentences(text: str, limit: int = 1) -> str:
    """Returns the beginning of a text as one line: at most `limit` sentences. Returns several sentences only if
    they are short. Cuts off a first sentence of more than 40 words. Joins the items of a list with semicolons.
    """
    items = _LIST_ITEM.sub(lambda item: ": " if item[1] == ":" else "; ", text.strip())
    line = " ".join(items.removeprefix("- ").split())
    heads = (line[: end.start()] for end in _SENTENCE_END.finditer(line))
    heads = (head for head in heads if head.count("`") % 2 == 0 and not _NO_SENTENCE_END.search(head))
    first, *longer = [*islice(heads, limit), line][:limit]
    line = next((head for head in reversed(longer) if len(head.split(" ")) <= MAX_WORDS_TOGETHER), first)
    words = line.split(" ")
    if len(words) > MAX_LEAD_WORDS:
        line = " ".join(words[:MAX_LEAD_WORDS]) + " …"
    return line if line.count("`") % 2 == 0 else line.replace("`", "'")


def is_shortened(text: str, limit: int = 1) -> bool:
    """Returns True if `first_sentences` leaves out a part of the text."""
    return first_sentences(text, limit) != " ".join(text.split())


def list_names(names: Sequence[str], limit: int = 3) -> str:
    """Lists the first names and counts the others: `a and b`, `a, b, and c`, `a, b, c and 2 more`."""
    if len(names) > limit:
        return f"{', '.join(names[:limit])} and {len(names) - limit} more"
    if len(names) < 3:
        return " and ".join(names)
    return f"{', '.join(names[:-1])}, and {names[-1]}"


def list_tests(tests: Iterable[str]) -> str:
    """Lists the first tests in Markdown, without their files and classes: "`test_a` and `test_b`"."""
    return list_names([inline_code(clip_line(test.rpartition("::")[2] or test, 80)) for test in tests])


def describe_condition(condition: Condition) -> str:
    """Describes a condition in Markdown, with a link to its lines if they are known."""
    sentence = escape_markdown(condition.sentence)
    first, last = condition.lines or (0, 0)
    numbers = "" if not first else f"{first}-{last}" if last > first else f"{first}"
    if condition.path in condition.sentence:
        place = f"line{'s' * (last > first)} {numbers}" if numbers else "see the file"
    else:
        place = inline_code(":".join(filter(None, (condition.path, numbers))))
    if not condition.url:
        return _insert_place(sentence, place) if condition.path and numbers else sentence
    return _insert_place(sentence, f"[{place}]({condition.url})")


def _insert_place(sentence: str, place: str) -> str:
    return f"{sentence.removesuffix('.')} ({place})."


def format_usage(usage: Usage) -> str:
    """Formats the cost of a run. The price may be unknown. Returns an empty string if no model has replied yet."""
    if usage.has_unknown_cost:
        return "cost unknown (no price is known for this model)"
    return "" if usage.cost is None else format_usd(usage.cost)


_PLURAL_OUTCOMES = {
    "error": "errors",
    "unexpected success": "unexpected successes",
    "expected failure": "expected failures",
    "retry": "retries",
}


def format_test_run(run: TestRun) -> str:
    """Counts the results of a test run in the words of its runner: `1 failed, 41 passed, 2 xfailed`."""
    counts = run.counts | ({"retry": run.retry_count} if run.retry_count else {})
    return ", ".join(f"{count} {outcome_label(outcome, count)}" for outcome, count in counts.items())


def format_test_counts(statuses: Iterable[TestStatus]) -> str:
    """Counts test results and lists the worst first: `3 failed, 1 passed`."""
    counts = Counter(statuses)
    order: tuple[TestStatus, ...] = ("failed", "error", "passed", "skipped")
    return ", ".join(
        f"{counts[status]} {outcome_label(status, counts[status])}" for status in order if counts[status]
    )


def outcome_label(outcome: str, count: int = 2) -> str:
    """Returns the name of an outcome in a list of counts, such as `errors`."""
    return outcome if count == 1 else _PLURAL_OUTCOMES.get(outcome, outcome)


def compare_outcomes(before: TestRun, after: TestRun) -> list[tuple[str, int, int]]:
    """Returns a label and the counts of both runs for each outcome that one of them has. Passed tests come first."""
    counts = before.counts, after.counts
    usual = ("passed", "failed") if before.has_run_tests or after.has_run_tests else ()
    outcomes = dict.fromkeys((*usual, *counts[0], *counts[1]))
    rows = [(outcome_label(name), counts[0].get(name, 0), counts[1].get(name, 0)) for name in outcomes]
    if before.retry_count or after.retry_count:
        rows.append((outcome_label("retry"), before.retry_count, after.retry_count))
    return rows


def patch_test_label(verdict: Verdict) -> str:
    """Returns a name for the tests in `new_tests_at_base`: `new test`, or `new or changed test` if some of
    these tests existed before.
    """
    known = verdict.before.results if verdict.before else {}
    return "new or changed test" if known.keys() & verdict.new_tests_at_base.keys() else "new test"


def format_duration(seconds: float) -> str:
    """Formats seconds: `42 s`, `3 min 20 s`, `1 h 5 min`, `2 h`."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s" if seconds >= 10 else f"{seconds:.1f} s"
    if rounded < 3600:
        return _two_units(rounded // 60, "min", rounded % 60, "s")
    return _two_units(rounded // 3600, "h", rounded % 3600 // 60, "min")


def _two_units(large: int, unit: str, small: int, part: str) -> str:
    return f"{large} {unit} {small} {part}" if small else f"{large} {unit}"


def format_size(count: int) -> str:
    """Formats bytes: `512 B`, `12 kB`, `3.4 MB`."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.0f} kB" if count < 999_500 else f"{count / 1e6:.1f} MB"
