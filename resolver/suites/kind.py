"""The test runners whose single outcomes can be had, by the names that a repository's file may use."""

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
