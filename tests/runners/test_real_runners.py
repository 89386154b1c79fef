"""Every real runner on a small repository with a bug: its tests are found, run before and after, and partly
selected.
"""

import pytest

from patchwright.resolver.settings.settings import RepoConfig
from patchwright.resolver.suites.discovery import find_suites
from patchwright.resolver.suites.execution import run_tests
from tests.resolver.git_repository import make_patch
from tests.resolver.patch_verifier import VerifierFactory
from tests.runners.conftest import skip_without
from tests.runners.repositories import SAMPLES, Sample

pytestmark = pytest.mark.slow


async def test_each_outcome_is_reported_before_and_after_the_fix(
    open_verifier: VerifierFactory, sample: Sample
) -> None:
    async with open_verifier(sample.files) as verifier:
        suites = await find_suites(verifier.workspace, RepoConfig())
        suite = suites.primary
        assert suite is not None
        assert (suite.command, suite.runner) == (sample.command, sample.report), suite.command_reason
        before = await verifier.run(suite)
        expected = {sample.good: "passed", sample.bad: "failed", **sample.others}
        assert (before.problem, before.results) == (None, expected), before.output
        fixed = sample.files[sample.source].replace("a - b", "a + b")
        patch = await make_patch(verifier.workspace, verifier.sandboxes, {sample.source: fixed})
        after = await verifier.run(suite, patch)
        assert (after.problem, after.results) == (None, {**expected, sample.bad: "passed"}), after.output
        assert suite.can_select_tests == (sample.alone is not None)
        if sample.alone:
            part = await run_tests(
                verifier.workspace, None, suite, verifier.sandboxes, "part", 120, (sample.alone,)
            )
            assert (part.problem, set(part.results)) == (None, sample.left), part.output
            assert part.results[sample.bad] == "failed"


ADDED = {
    "unittest": (
        "tests/test_new.py",
        "import unittest\nfrom calc import add\n\n\nclass New(unittest.TestCase):\n"
        "    def test_new(self):\n        self.assertEqual(add(2, 2), 4)\n",
        "tests/test_new.py::New::test_new",
    ),
    "node": (
        "test/new.test.js",
        "const assert = require('node:assert');\nconst test = require('node:test');\n"
        "const { add } = require('../calc.js');\ntest('new', () => assert.equal(add(2, 2), 4));\n",
        "test/new.test.js::new",
    ),
    "go": (
        "new_test.go",
        'package calc\n\nimport "testing"\n\nfunc TestNew(t *testing.T) {\n\tif Add(2, 2) != 4 {\n'
        "\t\tt.Fatal(Add(2, 2))\n\t}\n}\n",
        "example.org/calc::TestNew",
    ),
    "cargo": (
        "tests/new.rs",
        "#[test]\nfn new() {\n    assert_eq!(calc::add(2, 2), 4);\n}\n",
        "tests/new.rs::new",
    ),
    "rspec": (
        "spec/new_spec.rb",
        'require "calc"\n\nRSpec.describe("new") { it("adds") { expect(add(2, 2)).to eq(4) } }\n',
        "spec/new_spec.rb::new adds",
    ),
}


@pytest.mark.parametrize("name", ADDED)
async def test_a_fix_with_a_new_test_is_fixed_in_any_language(
    open_verifier: VerifierFactory, name: str
) -> None:
    sample = SAMPLES[name]
    skip_without(*sample.needs)
    path, content, test = ADDED[name]
    async with open_verifier(sample.files) as verifier:
        suite = (await find_suites(verifier.workspace, RepoConfig())).primary
        fixed = sample.files[sample.source].replace("a - b", "a + b")
        verdict = await verifier.verdict({sample.source: fixed, path: content}, suite, seconds=200)
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", tuple(sorted((sample.bad, test)))), (
        verdict.reason
    )


MAKEFILE = "CC = cc\n\n.PHONY: test\ntest: calc\n\t./calc\n\ncalc: calc.c\n\t$(CC) -o $@ $<\n"
PROGRAM = "int add(int a, int b) { return a - b; }\nint main(void) { return add(1, 2) != 3; }\n"


async def test_make_reports_only_success_or_failure(open_verifier: VerifierFactory) -> None:
    skip_without("make", "cc")
    async with open_verifier({"Makefile": MAKEFILE, "calc.c": PROGRAM}) as verifier:
        suite = (await find_suites(verifier.workspace, RepoConfig())).primary
        assert suite is not None
        assert (suite.command, suite.runner, suite.can_select_tests) == ("make test", "none", False)
        before = await verifier.run(suite)
        fixed = {"calc.c": PROGRAM.replace("a - b", "a + b")}
        after = await verifier.run(suite, await make_patch(verifier.workspace, verifier.sandboxes, fixed))
        assert (before.problem, before.results, before.exit_code) == (None, {}, 2)
        assert (after.problem, after.results, after.exit_code) == (None, {}, 0)
        verdict = await verifier.verdict(fixed, suite)
    assert (verdict.kind, verdict.reason) == (
        "fixed",
        "As a whole, the test command failed without the patch and passed with it.",
    )


async def test_make_with_a_known_runner_reports_each_test(open_verifier: VerifierFactory) -> None:
    skip_without("make")
    files = SAMPLES["pytest"].files | {"Makefile": "test: lint\n\t@python3 -m pytest -q\n\nlint:\n\ttrue\n"}
    async with open_verifier(files) as verifier:
        suite = (await find_suites(verifier.workspace, RepoConfig(test_command="make test"))).primary
        assert suite is not None and suite.runner == "pytest"
        run = await verifier.run(suite)
    assert (run.problem, run.results[SAMPLES["pytest"].bad], len(run.results)) == (None, "failed", 3)
