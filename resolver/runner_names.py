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
"""Names of test runners. These three names do not stand for one program:

- `tap` stands for all runners that write the Test Anything Protocol.
- `junit` stands for a command that writes a JUnit XML report to `$PATCHWRIGHT_REPORT`.
- `none` stands for a command whose exit code is the only result.
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
"""Maps runners to the language of their tests. All other runners support any language."""

NOTHING_COLLECTED = 5  # Exit code of pytest if it collected no tests.
