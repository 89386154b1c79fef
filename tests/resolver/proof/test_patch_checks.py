"""What is read from a patch and from test runs before the verdict: lost checks, missing names, kinds of files."""

import pytest

from patchwright.resolver.conditions import Condition
from patchwright.resolver.domain import TestRun, TestStatus, Verdict
from patchwright.resolver.proof.collection_errors import (
    AddedSymbols,
    find_added_symbols,
    skip_unrelated_errors,
)
from patchwright.resolver.proof.verdict_merge import MAX_OUTPUT, merge_verdicts
from patchwright.resolver.proof.weakened_tests import MAX_FILE_BYTES, compare_test_file, find_weakened_tests
from patchwright.resolver.suites.file_classifier import (
    is_runner_config,
    is_shadowing_runner,
    is_test_file,
    is_test_related,
)
from patchwright.resolver.suites.reports.runner_report import RunnerReport
from tests.resolver.patch_verifier import VerifierFactory

ONE = "def test_a():\n    assert add(1, 2) == 3\n"
TWO = ONE + "    assert add(0, 0) == 0\n"


@pytest.mark.parametrize(
    ("path", "old", "new", "found"),
    [
        ("test_a.py", ONE, ONE, None),
        ("test_a.py", ONE, TWO, None),
        ("test_a.py", TWO, ONE, "test_a.py has 2 checks fewer in test_a."),
        ("test_a.py", ONE, "def test_a():\n    assert add\n", "test_a.py has 1 check fewer in test_a."),
        ("test_a.py", ONE, "def test_a():\n    assert add(1, 2) == 3 or True\n",
         "test_a.py has 2 checks fewer in test_a."),
        ("test_a.py", ONE, "def test_a():\n    assert True\n", "test_a.py has 2 checks fewer in test_a."),
        ("test_a.py", ONE, "def test_a():\n    assert add(1, 2) == 3 and True\n", None),
        ("test_a.py", ONE, "def test_a():\n    with pytest.raises(ValueError):\n        add(1, 2)\n", None),
        ("test_a.py", ONE, "def test_b():\n    pass\n", None),  # The test runs count it as missing.
        ("test_a.py", ONE, f"@pytest.mark.skip\n{ONE}", "test_a.py has 1 skip more."),
        ("test_a.py", ONE, f"# skip this\n{ONE}", None),
        ("test_a.py", f"@pytest.mark.xfail\n{ONE}", ONE, None),
        ("test_a.py", TWO, f"@skip\n@skip\n{ONE}", "test_a.py has 2 checks fewer in test_a and 2 skips more."),
        (
            "test_a.py",
            "class TestA:\n    async def test_x(self):\n        self.assertEqual(1, f())\n        raises(E)\n"
            "        t.warns(W)\n        t.fail()\n        expect(f())\n",
            "class TestA:\n    async def test_x(self):\n        f()\n",
            "test_a.py has 7 checks fewer in TestA.test_x.",
        ),
        (
            "test_a.py",
            "".join(f"def test_{name}():\n    assert f()\n" for name in "edcba"),
            "".join(f"def test_{name}():\n    f()\n" for name in "edcba"),
            "test_a.py has 5 checks fewer in test_a, test_b, test_c.",
        ),
        ("test_a.py", "assert a\nassert b (\n", "assert a (\n", "test_a.py has 1 check fewer."),
        ("a.test.js", "expect(a); expect(b)", "expect(a)\n// expect(b)", "a.test.js has 1 check fewer."),
        ("a.test.js", "it('x')", "it.skip('x')", "a.test.js has 1 skip more."),
        ("lib.rs", "assert_eq!(1, f());", "f();", "lib.rs has 1 check fewer."),
    ],
)  # fmt: skip
def test_a_test_that_checks_less_is_named(path: str, old: str, new: str, found: str | None) -> None:
    assert compare_test_file(path, old, new.encode()) == found


async def test_only_tests_that_the_patch_edits_are_compared_with_the_base(
    open_verifier: VerifierFactory,
) -> None:
    largest = TWO + "#" * (MAX_FILE_BYTES - len(TWO))
    old: dict[str, str | bytes] = {
        "a_notes.txt": TWO, "calc.py": TWO, "lib.rs": "assert_eq!(1, f());", "deleted.test.js": "expect(a)",
        "test_huge.py": largest + "#", "test_large.py": largest, "test_now_huge.py": TWO, "tests/test_a.py": TWO,
    }  # fmt: skip
    new: dict[str, str | None] = dict.fromkeys(old, ONE) | {
        "lib.rs": "f();", "deleted.test.js": None, "test_new.py": "def test_b(): pass\n",
    }  # fmt: skip
    async with open_verifier(old) as verifier:
        workspace = verifier.workspace
        patch = await verifier.patch(
            new, f"head -c {MAX_FILE_BYTES} /dev/zero | tr '\\0' '#' >>test_now_huge.py"
        )
        changes, tests = await workspace.list_changes(patch), frozenset(filter(is_test_file, old))
        assert await find_weakened_tests(workspace, patch, changes, tests) == (
            "lib.rs has 1 check fewer.",
            "test_large.py has 2 checks fewer in test_a.",
            "tests/test_a.py has 2 checks fewer in test_a.",
        )


async def test_at_most_twenty_weakened_test_files_are_reported(open_verifier: VerifierFactory) -> None:
    names = [f"test_{number:02}.py" for number in range(21)]
    async with open_verifier(dict.fromkeys(names, TWO)) as verifier:
        workspace = verifier.workspace
        patch = await verifier.patch({}, "sed -i 3d test_*.py")
        found = await find_weakened_tests(
            workspace, patch, await workspace.list_changes(patch), frozenset(names)
        )
    assert [sentence.partition(" ")[0] for sentence in found] == names[:20]


ADDED = AddedSymbols(
    {"src/calc.py": frozenset({"add"}), "pkg/__init__.py": frozenset()},
    frozenset({"lib/sum.ts", "lib/sum.rb", "lib/date.util.ts"}),
)


@pytest.mark.parametrize(
    ("message", "explained"),
    [
        ("E   ImportError: cannot import name 'add' from 'calc'", True),
        ("E   ImportError: cannot import name 'sub' from 'calc'", False),
        ("E   AttributeError: module 'calc' has no attribute 'add'", True),
        ("E   AttributeError: module 'calc' has no attribute 'sub'", False),
        ("E   ModuleNotFoundError: No module named 'calc'", True),
        ("E   ModuleNotFoundError: No module named 'pkg'", True),
        ("E   ModuleNotFoundError: No module named 'src.calc'", True),
        ("E   ModuleNotFoundError: No module named 'lc'", False),
        ("E   ModuleNotFoundError: No module named 'requests'", False),
        # The last error is the one that stopped the collection.
        ("E   ImportError: cannot import name 'sub'\nE   ImportError: cannot import name 'add'", True),
        ("E   ImportError: cannot import name 'add'\nE   ImportError: cannot import name 'sub'", False),
        ("E   ImportError: cannot import name 'add'\nE   ValueError: no", False),
        ("the test says: ImportError: cannot import name 'add'", False),
        ("ImportError: Failed to import test module: t\nImportError: cannot import name 'add' from 'calc'", True),
        ("ImportError: cannot import name 'add' from 'calc'\nValueError: no", False),
        ("SyntaxError: The requested module './calc.mjs' does not provide an export named 'add'", True),
        ("SyntaxError: The requested module './calc.mjs' does not provide an export named 'other'", False),
        ("Error: Cannot find module './sum' from 'a.test.ts'", True),
        ("Error: Failed to load url ../lib/sum (resolved id: ../lib/sum). Does the file exist?", True),
        ("Error: Failed to resolve import \"../lib/sum.ts\" from a.test.ts", True),
        ("Error: Cannot find module 'sum'", False),  # A package, not a file.
        ("Error: Cannot find module './other'", False),
        ("Error: Cannot find module './date.util'", True),
        ("Error: Cannot find module './date'", False),
        ("LoadError: cannot load such file -- ./sum", True),
        ("LoadError: cannot load such file -- lib/sum.rb", True),
        ("LoadError: cannot load such file -- other", False),
        ("./calc_test.go:6:5: undefined: add", True),
        ("./calc_test.go:6:5: undefined: calc.add", True),
        ("./calc_test.go:6:5: undefined: calc.other", False),
        ("./calc_test.go:6:5: c.add undefined (type Calc has no field or method add)", True),
        ("error[E0425]: cannot find function `add` in crate `calc`", True),
        ("error[E0425]: cannot find function `other` in crate `calc`", False),
        ("error[E0432]: unresolved import `calc::add`\n  no `add` in the root", True),
        ("error[E0433]: failed to resolve: could not find `add` in `calc`", True),
        ("error[E0599]: no method named `add` found for struct `Calc` in the current scope", True),
        ("[ERROR]   symbol:   method add(int,int)", True),
        ("[ERROR]   symbol:   method other(int,int)", False),
        ("e: CalcTest.kt: (5, 9): Unresolved reference: add", True),
        ("", False),
    ],
)  # fmt: skip
def test_an_error_is_explained_by_what_the_patch_adds(message: str, explained: bool) -> None:
    assert ADDED.explains(message) == explained
    assert not AddedSymbols({}, frozenset()).explains(message)
    if "ImportError" not in message and "E  " not in message:  # Python's reports contain the error
        assert ADDED.explains("", message) == explained


async def test_the_patch_explains_only_names_and_files_that_the_base_lacks(
    open_verifier: VerifierFactory,
) -> None:
    old: dict[str, str | bytes] = {
        "calc.py": b"def one(): pass  # caf\xe9\n", "old.js": "", "tool.sh": "two() { :; }\n",
    }  # fmt: skip
    new: dict[str, str | None] = {
        "calc.py": "def one(): pass\ndef add2(): pass\n", "pkg/__init__.py": "", "old.js": "x", "sum.js": "",
        "tool.sh": "three() { :; }\n",
    }  # fmt: skip
    async with open_verifier(old) as verifier:
        workspace = verifier.workspace
        patch = await verifier.patch(new, "ln -s calc.py link.py && printf 'four = \"\\351\"' >latin.py")
        added = await find_added_symbols(workspace, patch, await workspace.list_changes(patch))
    explained = {
        message: added.explains(message)
        for message in (
            *(f"E   ImportError: cannot import name '{name}'" for name in ("one", "add2", "three", "four")),
            *(f"E   ModuleNotFoundError: No module named '{name}'" for name in ("pkg", "link")),
            *(f"Error: Cannot find module './{name}'" for name in ("old", "sum")),
        )
    }
    assert [message.split("'")[1] for message, holds in explained.items() if holds] == [
        "add2", "four", "pkg", "./sum",
    ]  # fmt: skip


def run(
    problem: str | None = None, exit_code: int | None = 1, output: str = "", **results: TestStatus
) -> TestRun:
    named = {name.replace("__", "::"): result for name, result in results.items()}
    return TestRun(
        command="c", results=named, exit_code=exit_code, seconds=1.0, output=output, problem=problem
    )


def test_only_errors_for_want_of_the_patch_count_at_base() -> None:
    ours, other = "E   ImportError: cannot import name 'add'", "E   ImportError: cannot import name 'x'"
    report = RunnerReport(results={}, messages={"t::a": ours, "t::b": other, "t::d": ours})
    before = run(t__a="error", t__b="error", t__c="error", t__d="failed", t__e="passed")
    after = skip_unrelated_errors(before, report, ADDED, frozenset({"t::a"}))
    assert after == run(t__a="error", t__b="skipped", t__c="skipped", t__d="failed", t__e="passed")
    # Some reports say only in the output why a file could not be loaded; a single test has its own message.
    output = "Cannot find module './sum'"
    file = run(output=output, u="error", t__a="error")
    assert skip_unrelated_errors(file, RunnerReport(results={}, messages={}), ADDED, frozenset()) == run(
        output=output, u="error", t__a="skipped"
    )


@pytest.mark.parametrize(
    ("problem", "exit_code", "output", "errors"),
    [
        ("no tests ran", 1, "Cannot find module './sum'", True),
        ("no tests ran", 1, "Cannot find module './other'", False),
        ("no tests ran", 0, "Cannot find module './sum'", False),
        ("killed", None, "", True),
        ("killed by SIGABRT", 134, "", True),
        ("killed by SIGSEGV", -11, "", True),
        ("killed, perhaps because it used too much memory", 137, "", False),
        (None, 1, "Cannot find module './sum'", False),
    ],
)
def test_a_runner_that_stops_for_want_of_the_patch_or_crashes_fails_all_its_tests(
    problem: str | None, exit_code: int | None, output: str, errors: bool
) -> None:
    before = run(problem, exit_code, output)
    after = skip_unrelated_errors(
        before, RunnerReport(results={}, messages={}), ADDED, frozenset({"u::a", "u::b"})
    )
    assert after == (run(None, exit_code, output, u__a="error", u__b="error") if errors else before)


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        ("src/calc.py", ""), ("tests/data.json", "related"), ("testing/x.py", "related"),
        ("testing/unit/x.py", "related"), ("src/testing/x.py", ""),
        ("test_calc.py", "test related"), ("pkg/calc_test.py", "test related"),
        ("test_calc.txt", "test related"), ("calc_spec.rb", "test related"), ("a.test.ts", "test related"),
        ("CalcTest.java", "test related"), ("TestCalc.java", "test related"), ("Testing.java", ""),
        ("pkg/tests.py", "test related"), ("test.js", "test related"), ("test.py", ""),
        ("conftest.py", "config related"), ("tests/conftest.py", "config related"),
        ("pyproject.toml", "config related"), (".github/workflows/ci.yml", "config related"),
        ("src/sitecustomize.py", "config related"), ("evil.pth", "config related"),
        ("src/pytest.py", "config related"), ("lib/pytest.py", ""), ("vitest.config.ts", "config related"),
        ("spec_helper.rb", "config related"), ("tests/test.py", "test related"), ("calc/test.py", ""),
    ],
)  # fmt: skip
def test_files_are_classified_by_their_role_in_test_runs(path: str, kinds: str) -> None:
    predicates = {
        "test": is_test_file, "config": is_runner_config, "related": is_test_related
    }  # fmt: skip
    assert " ".join(name for name, holds in predicates.items() if holds(path)) == kinds


@pytest.mark.parametrize(
    ("path", "directory", "shadows"),
    [
        ("json.py", "", True), ("json/__init__.py", "", True), ("src/json.py", "", True),
        ("src/pytest/a.py", "", True), ("_pytest.so", "", True), ("patchwright_pytest.py", "", True),
        ("json.txt", "", False), ("pkg/json.py", "", False), ("pkg/json.py", "pkg", True), ("calc.py", "", False),
        ("src.py", "", False), ("other/json.py", "pkg", False),
    ],
)  # fmt: skip
def test_a_file_that_replaces_a_module_of_the_runner_is_found(
    path: str, directory: str, shadows: bool
) -> None:
    assert is_shadowing_runner(path, directory) == shadows


def test_merged_verdicts_keep_what_each_suite_shows() -> None:
    def suite(name: str, kind: str, **more: object) -> Verdict:
        test_run = TestRun(
            command=f"run {name}", command_reason=f"{name} is there.", results={f"{name}::t": "passed"},
            exit_code=0, seconds=1.5, output=f"{name}x" * MAX_OUTPUT, flaky=(f"{name}::f",),
        )  # fmt: skip
        fields = {"before": test_run, "after": test_run, "reason": f"{name}: {kind}."} | more
        return Verdict(kind=kind, **fields)  # type: ignore[arg-type]

    lists = (
        "fail_to_pass",
        "pass_to_fail",
        "flaky",
        "missing",
        "modified_tests_failing",
        "replaced_failing_tests",
        "patch_tests_failing",
    )
    first, second = (
        suite(name, "unproven", new_tests_at_base={name: "failed"}, partial=name == "b",
              **dict.fromkeys(lists, (name, "both")))
        for name in "ab"
    )  # fmt: skip
    merged = merge_verdicts((first, second))
    assert {field: getattr(merged, field) for field in lists} == dict.fromkeys(lists, ("a", "both", "b"))
    assert (merged.kind, merged.reason, merged.partial) == ("unproven", "a: unproven.", True)
    assert merged.new_tests_at_base == {"a": "failed", "b": "failed"}
    after = merged.after
    assert after is not None and after == merged.before
    assert (after.command, after.command_reason) == ("run a; run b", "a is there. b is there.")
    assert (after.results, after.flaky) == ({"a::t": "passed", "b::t": "passed"}, ("a::f", "b::f"))
    half = MAX_OUTPUT // 2
    assert (after.seconds, after.output) == (
        3.0,
        f"$ run a\n{'ax' * (half // 2)}\n$ run b\n{'bx' * (half // 2)}",
    )
    assert (after.exit_code, after.problem) == (0, None)

    fixed, absent = suite("c", "fixed", fail_to_pass=("h::t",)), suite("d", "untested", after=None)
    unproven = suite("e", "unproven")
    condition = Condition(kind="tests_not_run", sentence="`x` is not run now.", tests=("h::x",))
    fixed_reason = "1 test failed without the patch and passed with it"
    conditional = f"{fixed_reason}, and the patch also removes or skips 1 existing test."
    for verdicts, kind, reason in (
        ((unproven, fixed), "fixed", "c: fixed."),
        ((fixed, first), "unproven", "a: unproven."),
        ((fixed, absent), "unproven", "d: untested."),
        ((absent, absent), "untested", "d: untested."),
        ((absent, suite("f", "regressed"), fixed), "regressed", "f: regressed."),
        ((suite("g", "empty"), fixed), "fixed", "c: fixed."),
        ((suite("g", "empty"), suite("g", "empty")), "empty", "g: empty."),
        ((fixed, suite("h", "unproven", patch_tests_failing=("x",))), "unproven", "h: unproven."),
        ((fixed, suite("h", "unproven", conditions=(condition,))), "conditional", conditional),
        ((suite("h", "conditional", fail_to_pass=("h::t",), conditions=(condition,)), fixed), "conditional",
         conditional),
        ((suite("h", "conditional", fail_to_pass=("h::t",), conditions=(condition,)), unproven), "conditional",
         conditional),
        ((unproven, suite("h", "unproven", conditions=(condition,))), "unproven", "e: unproven."),
        ((fixed, suite("h", "unproven", before=None)), "unproven", "h: unproven."),
        ((fixed, suite("h", "unproven", after=run("no tests ran"))), "unproven", "h: unproven."),
    ):  # fmt: skip
        both = merge_verdicts(verdicts)
        assert (both.kind, both.reason) == (kind, reason)
    edited = suite(
        "i", "unproven", weakened_tests=("w",), deleted_test_files=("d",), reverted_test_config=("c",)
    )
    both = merge_verdicts((edited, edited))
    assert (both.weakened_tests, both.deleted_test_files, both.reverted_test_config) == (
        ("w",),
        ("d",),
        ("c",),
    )
    failing = suite("j", "unproven", after=run(None, 3))
    hung = suite("k", "unproven", after=run("killed", None))
    assert (merge_verdicts((fixed, failing)).after, merge_verdicts((absent, absent)).after) != (None, None)
    merged_runs = [
        merge_verdicts(each).after for each in ((fixed, failing), (failing, hung), (absent, failing))
    ]
    assert [(each.exit_code, each.problem) for each in merged_runs if each] == [
        (3, None),
        (None, "killed"),
        (3, None),
    ]
