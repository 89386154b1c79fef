"""Every runner for real: a small repository with a bug, its tests found and run before and after, some alone."""

import pytest

from resolver.settings.settings import RepoConfig
from resolver.suites.find import find_suites
from resolver.suites.run import run_suite
from tests.resolver.proofs import Proven
from tests.resolver.repositories import changed
from tests.runners.conftest import skip_without
from tests.runners.repositories import SAMPLES, Sample

pytestmark = pytest.mark.slow


async def test_each_outcome_is_had_before_and_after_the_bug_is_mended(proven: Proven, sample: Sample) -> None:
    async with proven(sample.files) as proof:
        suites = await find_suites(proof.workspace, RepoConfig())
        suite = suites.likely
        assert suite is not None
        assert (suite.command, suite.report) == (sample.command, sample.report), suite.why
        before = await proof.run(suite)
        expected = {sample.good: "passed", sample.bad: "failed", **sample.others}
        assert (before.problem, before.results) == (None, expected), before.output
        mended = sample.files[sample.source].replace("a - b", "a + b")
        patch = await changed(proof.workspace, proof.sandboxes, {sample.source: mended})
        after = await proof.run(suite, patch)
        assert (after.problem, after.results) == (None, {**expected, sample.bad: "passed"}), after.output
        assert suite.selects == (sample.alone is not None)
        if sample.alone:
            part = await run_suite(
                proof.workspace, None, suite, proof.sandboxes, "part", 120, (sample.alone,)
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
async def test_a_patch_that_mends_and_adds_a_test_is_fixed_in_any_language(proven: Proven, name: str) -> None:
    sample = SAMPLES[name]
    skip_without(*sample.needs)
    path, content, test = ADDED[name]
    async with proven(sample.files) as proof:
        suite = (await find_suites(proof.workspace, RepoConfig())).likely
        mended = sample.files[sample.source].replace("a - b", "a + b")
        verdict = await proof.verdict({sample.source: mended, path: content}, suite, seconds=200)
    assert (verdict.kind, verdict.newly_passing) == ("fixed", tuple(sorted((sample.bad, test)))), (
        verdict.reason
    )


MAKEFILE = "CC = cc\n\n.PHONY: test\ntest: calc\n\t./calc\n\ncalc: calc.c\n\t$(CC) -o $@ $<\n"
PROGRAM = "int add(int a, int b) { return a - b; }\nint main(void) { return add(1, 2) != 3; }\n"


async def test_make_says_no_more_than_whether_all_is_well(proven: Proven) -> None:
    skip_without("make", "cc")
    async with proven({"Makefile": MAKEFILE, "calc.c": PROGRAM}) as proof:
        suite = (await find_suites(proof.workspace, RepoConfig())).likely
        assert suite is not None
        assert (suite.command, suite.report, suite.selects) == ("make test", "none", False)
        before = await proof.run(suite)
        mended = {"calc.c": PROGRAM.replace("a - b", "a + b")}
        after = await proof.run(suite, await changed(proof.workspace, proof.sandboxes, mended))
        assert (before.problem, before.results, before.exit_code) == (None, {}, 2)
        assert (after.problem, after.results, after.exit_code) == (None, {}, 0)
        verdict = await proof.verdict(mended, suite)
    assert (verdict.kind, verdict.reason) == (
        "fixed",
        "The test command failed without the patch and passed with it, as a whole.",
    )


async def test_make_that_runs_a_runner_tells_each_outcome(proven: Proven) -> None:
    skip_without("make")
    files = SAMPLES["pytest"].files | {"Makefile": "test: lint\n\t@python3 -m pytest -q\n\nlint:\n\ttrue\n"}
    async with proven(files) as proof:
        suite = (await find_suites(proof.workspace, RepoConfig(test_command="make test"))).likely
        assert suite is not None and suite.report == "pytest"
        run = await proof.run(suite)
    assert (run.problem, run.results[SAMPLES["pytest"].bad], len(run.results)) == (None, "failed", 3)
