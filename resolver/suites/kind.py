"""Test runners whose single outcomes can be had, and languages, by the names that configuration may use."""

from typing import Literal

Kind = Literal[
    "pytest",
    "unittest",
    "jest",
    "vitest",
    "mocha",
    "tap",
    "tape",
    "node",
    "go",
    "cargo",
    "maven",
    "gradle",
    "rspec",
    "minitest",
    "junit",
    "none",
]
"""tap: a runner that speaks the Test Anything Protocol. junit: the command writes a JUnit XML report to
`$PATCHWRIGHT_REPORT`. none: the exit code alone speaks."""

Language = Literal["python", "javascript", "go", "rust", "java", "ruby", "make"]
"""make: what only a Makefile tests, whatever it is written in."""

LANGUAGES: dict[Kind, Language] = {
    "pytest": "python",
    "unittest": "python",
    "jest": "javascript",
    "vitest": "javascript",
    "mocha": "javascript",
    "tape": "javascript",
    "node": "javascript",
    "go": "go",
    "cargo": "rust",
    "maven": "java",
    "gradle": "java",
    "rspec": "ruby",
    "minitest": "ruby",
}
"""What a runner's tests are written in; the others are of any language."""
