"""Selects the sections of a long instruction file that matter for work on an issue: how to build, test and write."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

RELEVANT_HEADING = re.compile(
    r"\b(?:build|compil|install|set ?up|develop|test|styl|lint|format|convention|guideline|rule|command|nam(?:e|ing)"
    r"|typ(?:e|ing)|cod(?:e|ing)|change ?log|must|never|always|important|do not|don't|pitfall|gotcha)",
    re.IGNORECASE,
)
MAX_INTRODUCTION = 600  # characters of the text before the first section
_HEADING = re.compile(r"(#{1,6})\s+(.+?)[\s#]*$")
_FENCE = re.compile(r"\s*(?:```|~~~)")


@dataclass(frozen=True)
class _Section:
    level: int
    """1 to 6; 0 for the text before the first heading."""
    heading: str
    text: str


def select_sections(text: str) -> tuple[str, tuple[str, ...]]:
    """Returns the relevant sections of a Markdown text, and the headings of the others.

    A section is relevant if its heading, or a heading above it other than the file's title, says so. If no heading
    is relevant, all sections are.
    """
    sections = list(_split_sections(text))
    shown: list[str] = []
    omitted: list[str] = []
    relevant_level = 7  # of the relevant heading above the section
    for section in sections:
        if section.level <= relevant_level:
            relevant_level = 7
        is_relevant = section.level > relevant_level or RELEVANT_HEADING.search(section.heading) is not None
        if is_relevant and 1 < section.level < relevant_level:
            relevant_level = section.level
        if is_relevant or (section.level < 2 and len(section.text) <= MAX_INTRODUCTION):
            shown.append(section.text)
        else:
            omitted.append(section.heading or "the introduction")
    if not any(RELEVANT_HEADING.search(section.heading) for section in sections):
        return text, ()
    return "\n".join(shown), tuple(omitted)


def _split_sections(text: str) -> Iterator[_Section]:
    level, heading, lines, is_code = 0, "", list[str](), False
    for line in text.split("\n"):
        if _FENCE.match(line):
            is_code = not is_code
        match = None if is_code else _HEADING.match(line)
        if match:
            if lines:
                yield _Section(level, heading, "\n".join(lines))
            level, heading, lines = len(match[1]), match[2], []
        lines.append(line)
    yield _Section(level, heading, "\n".join(lines))
