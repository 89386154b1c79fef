"""Verification with every real runner: a fix, a new test for it, and a regression."""

import pytest

from patchwright.resolver.proof.canaries import CANARY_SOURCES, Canary
from patchwright.resolver.settings.settings import RepoConfig
from patchwright.resolver.suites.discovery import find_suites
from tests.resolver.patch_verifier import VerifierFactory
from tests.runners.conftest import skip_without
from tests.runners.repositories import SAMPLES, Sample

pytestmark = pytest.mark.slow


async def test_a_fix_and_a_regression_are_recognized(open_verifier: VerifierFactory, sample: Sample) -> None:
    code = sample.files[sample.source]
    async with open_verifier(sample.files) as verifier:
        suite = (await find_suites(verifier.workspace, RepoConfig())).primary
        assert suite is not None
        fixed = await verifier.verdict({sample.source: code.replace("a - b", "a + b")}, suite, seconds=120)
        # Rust code contains its tests, which must stay.
        wrong = code.replace("    1\n", "    7\n") if sample.report == "cargo" else code.replace("1", "7")
        broken = await verifier.verdict({sample.source: wrong}, suite, seconds=120)
    assert (fixed.kind, fixed.fail_to_pass) == ("fixed", (sample.bad,)), fixed.reason
    assert broken.kind == "regressed" and sample.good in broken.pass_to_fail, broken.reason


@pytest.mark.parametrize("name", CANARY_SOURCES)
async def test_every_runner_reports_the_canary_tests_as_expected(
    open_verifier: VerifierFactory, name: str
) -> None:
    sample = SAMPLES[name]
    skip_without(*sample.needs)
    canary = Canary.create_for(sample.bad.partition("::")[0], sample.report)
    assert canary is not None
    async with open_verifier(sample.files) as verifier:
        suite = (await find_suites(verifier.workspace, RepoConfig())).primary
        assert suite is not None
        with_canary = await verifier.run(suite, canary.add_to(await verifier.patch({})), seconds=120)
        without = await verifier.run(suite, seconds=120)
    checked = canary.check_run(with_canary)
    assert (checked.problem, checked.results, checked.exit_code == 0) == (None, without.results, False)


async def test_a_new_check_in_an_existing_test_shows_the_fix(open_verifier: VerifierFactory) -> None:
    # go runs whole packages, not single files.
    sample = SAMPLES["go"]
    skip_without(*sample.needs)
    more = sample.files["calc_test.go"].replace("One() != 1", "One() != 1 || Add(1, 2) != 3")
    fixed = sample.files["calc.go"].replace("a - b", "a + b")
    async with open_verifier(sample.files) as verifier:
        suite = (await find_suites(verifier.workspace, RepoConfig())).primary
        verdict = await verifier.verdict({"calc.go": fixed, "calc_test.go": more}, suite, seconds=120)
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", (sample.bad, sample.good)), verdict.reason
    assert verdict.new_tests_at_base == {sample.good: "failed"}


async def test_failing_tests_cannot_be_removed(open_verifier: VerifierFactory, sample: Sample) -> None:
    tests = [path for path in sample.files if path in sample.bad or "test" in path or "spec" in path]
    code = sample.files[sample.source]
    away = {
        path: None for path in tests if path != sample.source and not path.endswith((".json", ".xml", ".mod"))
    }
    async with open_verifier(sample.files) as verifier:
        suite = (await find_suites(verifier.workspace, RepoConfig())).primary
        verdict = await verifier.verdict({**away, sample.source: code + "\n"}, suite, seconds=120)
    assert verdict.kind == "unproven" and not verdict.fail_to_pass, verdict


async def test_a_new_test_that_makes_another_pass_shows_no_fix(
    open_verifier: VerifierFactory,
) -> None:
    # mocha runs all files in one process, not single files.
    sample = SAMPLES["mocha"]
    skip_without(*sample.needs)
    evil = (
        "const calc = require('../calc.js');\nconst { readFileSync } = require('node:fs');\n"
        "const there = readFileSync(require.resolve('../calc.js'), 'utf8').includes('fixed');\n"
        "if (there) calc.add = (a, b) => a + b;\nit('new', () => {});\n"
    )
    files = {"calc.js": sample.files["calc.js"] + "// fixed\n", "test/a_new.js": evil}
    async with open_verifier(sample.files) as verifier:
        suite = (await find_suites(verifier.workspace, RepoConfig())).primary
        assert suite is not None
        verdict = await verifier.verdict({**files}, suite, seconds=120)
        fooled = await verifier.run(suite, await verifier.patch({**files}), seconds=120)
    assert (verdict.kind, verdict.fail_to_pass) == ("unproven", ()), verdict.reason
    assert verdict.after and verdict.after.results[sample.bad] == "failed"
    assert fooled.results[sample.bad] == "passed", "the trick works on others"


_SUB = "exports.sub = (a, b) => a - b;\n"
_TAKES = "const { sub } = require('../sub');\n"
_EQUAL = "require('node:assert').equal(sub(3, 1), 2);"
_EXPECT = "test('subs', () => { expect(sub(3, 1)).toBe(2); });\n"
MODULES: dict[str, dict[str, str]] = {
    "jest": {"sub.js": _SUB, "sub.test.js": f"const {{ sub }} = require('./sub');\n{_EXPECT}"},
    "vitest": {
        "src/sub.mjs": "export const sub = (a, b) => a - b;\n",
        "src/sub.test.mjs": "import { expect, test } from 'vitest';\nimport { sub } from './sub.mjs';\n"
        + _EXPECT,
    },
    "node": {
        "sub.js": _SUB,
        "test/sub.test.js": f"const test = require('node:test');\n{_TAKES}test('subs', () => {{ {_EQUAL} }});\n",
    },
    "mocha": {"sub.js": _SUB, "test/sub.js": f"{_TAKES}it('subs', () => {{ {_EQUAL} }});\n"},
    "tap": {
        "sub.js": _SUB,
        "test/sub.js": f"const t = require('tap');\n{_TAKES}t.test('subs', (t) => {{ {_EQUAL} t.end(); }});\n",
    },
    "rspec": {
        "lib/sub.rb": "def sub(a, b) = a - b\n",
        "spec/sub_spec.rb": "require_relative '../lib/sub'\n\nRSpec.describe('sub') do\n"
        "  it('subs') { expect(sub(3, 1)).to eq(2) }\nend\n",
    },
    "go": {
        "sub.go": "package calc\n\nfunc Sub(a, b int) int { return a - b }\n",
        "sub_test.go": 'package calc\n\nimport "testing"\n\nfunc TestSub(t *testing.T) {\n'
        "\tif Sub(3, 1) != 2 {\n\t\tt.Fatal(Sub(3, 1))\n\t}\n}\n",
    },
    "cargo": {
        "src/lib.rs": f"{SAMPLES['cargo'].files['src/lib.rs']}\npub fn sub(a: i32, b: i32) -> i32 {{\n    a - b\n}}\n",
        "tests/sub.rs": "#[test]\nfn subs() {\n    assert_eq!(calc::sub(3, 1), 2);\n}\n",
    },
    "maven": {
        "src/main/java/org/example/Sub.java": "package org.example;\n\npublic class Sub {\n"
        "    public static int sub(int a, int b) { return a - b; }\n}\n",
        "src/test/java/org/example/SubTest.java": "package org.example;\n\nimport static org.junit.Assert.*;\n"
        "import org.junit.*;\n\npublic class SubTest {\n"
        "    @Test public void subs() { assertEquals(2, Sub.sub(3, 1)); }\n}\n",
    },
}
"""By runner: a new module and a test of it, which cannot be loaded or compiled at the base commit."""


@pytest.mark.parametrize("name", MODULES)
async def test_a_test_that_fails_for_the_missing_module_counts(
    open_verifier: VerifierFactory, name: str
) -> None:
    sample, (_, test) = SAMPLES[name], MODULES[name]
    skip_without(*sample.needs)
    async with open_verifier(sample.files) as verifier:
        suite = (await find_suites(verifier.workspace, RepoConfig())).primary
        verdict = await verifier.verdict({**MODULES[name]}, suite, seconds=120)
        without = await verifier.verdict(
            {test: MODULES[name][test], sample.source: sample.files[sample.source] + "\n"}, suite, seconds=120
        )
    assert (verdict.kind, len(verdict.fail_to_pass)) == ("fixed", 1), verdict.reason
    assert without.kind == "unproven" and not without.fail_to_pass, without.reason
