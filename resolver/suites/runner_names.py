"""The names of test runners and languages that configuration files can use."""

from typing import Literal

RunnerName = Literal[
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
"""Names of test runners. Some do not name one program:

- `tap` is any runner that writes the Test Anything Protocol.
- `junit` is a command that writes a JUnit XML report to `$PATCHWRIGHT_REPORT`.
- `none` is a command of which only the exit code counts.
"""

Language = Literal["python", "javascript", "go", "rust", "java", "ruby", "make"]
"""Languages of tests. `make` means tests that only a Makefile runs, in any language."""

RUNNER_LANGUAGES: dict[RunnerName, Language] = {
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
"""The language of a runner's tests; other runners support any language."""
