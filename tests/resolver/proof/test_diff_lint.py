"""Parts of a diff that do not belong to a fix."""

import pytest

from patchwright.resolver.domain import Patch
from patchwright.resolver.proof.diff_lint import MAX_FINDINGS, lint_diff


def diff(path: str, added: str, removed: str = "", new: bool = False) -> Patch:
    lines = [f"diff --git a/{path} b/{path}", *(["new file mode 100644"] if new else [])]
    lines += [f"--- a/{path}", f"+++ b/{path}", "@@ -1 +1 @@"]
    lines += [f"-{line}" for line in removed.splitlines()] + [f"+{line}" for line in added.splitlines()]
    return Patch(base_sha="b" * 40, diff="\n".join(lines).encode() + b"\n")


@pytest.mark.parametrize(
    ("patch", "sentence"),
    [
        (diff("a.py", "    breakpoint()"), "a.py contains what looks like new debug output: `breakpoint()`."),
        (
            diff("src/x.ts", "  console.log(state)"),
            "src/x.ts contains what looks like new debug output: `console.log(state)`.",
        ),
        (diff("repro.py", "x", new=True), "repro.py is a new file that looks like a scratch file."),
        (
            diff("src/a.py.orig", "x", new=True),
            "src/a.py.orig is a new file of a kind that does not belong in a repository.",
        ),
        (diff("a.c", "<<<<<<< HEAD"), "a.c contains a conflict marker (`<<<<<<< HEAD`)."),
        (diff("a.js", "if (a)  {", "if (a) {"), "a.js changes only whitespace."),
        (diff("a.js", "if (a)\n{", "if (a) {"), "a.js changes only whitespace."),
        (
            diff("a.py", "x = 1\nbreakpoint()", "x = 1"),
            "a.py contains what looks like new debug output: `breakpoint()`.",
        ),
        (diff("a.py", "x = 1", "x = 1  "), "a.py changes only whitespace."),
        (diff("a.js", "console.log(x)", "  console.log(x)"), "a.js changes only whitespace."),
    ],
)
def test_leftovers_in_the_diff_are_named(patch: Patch, sentence: str) -> None:
    assert lint_diff(patch) == (sentence,)


@pytest.mark.parametrize(
    "patch",
    [
        diff("cli.py", 'print("done")'),
        *(diff(f"a.{suffix}", "    - x", "- x") for suffix in ("py", "yml", "yaml", "md")),
        diff("tests/test_repro.py", "def test_x(): ...", new=True),
        diff("src/debug.py", "def trace(): ...", new=True),
        Patch(base_sha="b" * 40, diff=b"Binary files differ\n\xff\xfe"),
        Patch(base_sha="b" * 40, diff=b""),
    ],
)
def test_legitimate_lines_are_no_leftovers(patch: Patch) -> None:
    assert lint_diff(patch) == ()


@pytest.mark.parametrize(
    ("suffixes", "line"),
    [
        ("py", "import pdb"),
        ("js jsx ts tsx mjs cjs vue", "debugger;"),
        ("rb", "binding.irb"),
        ("go", "spew.Dump(x)"),
        ("rs", "dbg!(x);"),
        ("java kt", 'System.out.println("DEBUG");'),
        ("php", "var_dump($x);"),
        ("PY", "breakpoint()"),
    ],
)
def test_debug_output_is_found_in_each_language(suffixes: str, line: str) -> None:
    for suffix in suffixes.split():
        sentence = f"src/a.{suffix} contains what looks like new debug output: `{line}`."
        assert lint_diff(diff(f"src/a.{suffix}", line)) == (sentence,)


def test_long_findings_are_shortened_and_only_the_first_are_named() -> None:
    found = lint_diff(diff("a.js", "\n".join(f"{'x' * 100}{n}; debugger" for n in range(MAX_FINDINGS + 1))))
    assert found == (f"a.js contains what looks like new debug output: `{'x' * 100}`.",) * MAX_FINDINGS
    marker = "<<<<<<< " + "b" * 60
    assert lint_diff(diff("a.js", marker)) == (f"a.js contains a conflict marker (`{marker[:60]}`).",)
