"""A change to documentation is called so only if nothing but people reads the changed files."""

import pytest

from patchwright.resolver.suites.suite import Suite
from tests.resolver.patch_verifier import PYTEST, VerifierFactory

TEXT = "# Calc\n"
FILES = {
    "calc.py": '"""See docs/guide.md."""\nHELP = open("help.md").read()\n',
    "pyproject.toml": '[project]\nname = "calc"\nversion = "1"\nreadme = "README.md"\n',
    "Makefile": "manual:\n\tpandoc manual.md\n",
    **dict.fromkeys(
        ("README.md", "help.md", "manual.md", "docs/guide.md", "AGENTS.md", "calc/prompt.md"), TEXT
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("README.md", True),
        ("docs/guide.md", True),
        ("docs/new.rst", True),
        ("calc/README.md", True),
        ("help.md", False),  # the program reads it
        ("manual.md", False),  # a command reads it
        ("calc/prompt.md", False),  # may be a part of the package
        ("AGENTS.md", False),  # an agent follows it
        ("docs/conf.py", False),
        ("docs/page.mdx", False),  # may contain code
        ("tests/data.md", False),
    ],
)
async def test_only_prose_for_people_is_documentation(
    open_verifier: VerifierFactory, path: str, *, expected: bool
) -> None:
    async with open_verifier(FILES) as verifier:
        verdict = await verifier.verdict({path: "New text.\n"}, suite=None)
        assert (verdict.kind, verdict.documentation_only) == ("untested", expected)
        reason = "The patch changes only documentation, so there is nothing to test."
        assert (verdict.reason == reason) == expected
        both = await verifier.verdict({path: "New text.\n", "calc.py": "x = 1\n"}, suite=None)
        assert not both.documentation_only


async def test_an_executable_document_is_no_documentation(open_verifier: VerifierFactory) -> None:
    async with open_verifier(FILES) as verifier:
        patch = await verifier.patch({"README.md": "echo hello\n"}, "chmod +x README.md")
        assert not (await verifier.judged(patch, suite=None)).documentation_only


READS_DIRECTORY = "from pathlib import Path\n\n\ndef test_docs():\n    assert list(Path('docs').iterdir())\n"
READS_PATTERN = READS_DIRECTORY.replace("Path('docs').iterdir()", "Path().glob('*.md')")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "path", "expected"),
    [
        (READS_DIRECTORY, "docs/guide.md", False),
        (READS_DIRECTORY, "README.md", True),
        (READS_PATTERN, "README.md", False),
        (READS_PATTERN, "README.rst", True),
    ],
)
async def test_a_document_that_the_tests_may_read_is_no_documentation(
    open_verifier: VerifierFactory, tests: str, path: str, *, expected: bool
) -> None:
    async with open_verifier({**FILES, "tests/test_docs.py": tests}) as verifier:
        verdict = await verifier.verdict({path: "New text.\n"}, suite=PYTEST)
        assert (verdict.kind, verdict.documentation_only) == ("unproven", expected)
        reason = "The patch changes only documentation, and all tests still pass."
        assert (verdict.reason == reason) == expected


@pytest.mark.slow
async def test_a_document_with_doctests_is_no_documentation(open_verifier: VerifierFactory) -> None:
    suite = Suite(command="python3 -m pytest --doctest-glob=guide.*", runner="pytest", command_reason="")
    async with open_verifier({"docs/guide.rst": ">>> 1 + 1\n2\n"}) as verifier:
        verdict = await verifier.verdict({"docs/guide.rst": ">>> 1 + 2\n3\n"}, suite=suite)
        assert (verdict.kind, verdict.documentation_only) == ("unproven", False)
