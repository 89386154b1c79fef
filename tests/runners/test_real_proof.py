"""The whole proof with every runner for real: a mend, a new test for it, and what breaks something."""

import pytest

from resolver.settings.settings import RepoConfig
from resolver.suites.find import find_suites
from tests.resolver.proofs import Proven
from tests.runners.conftest import skip_without
from tests.runners.repositories import SAMPLES, Sample

pytestmark = pytest.mark.slow


async def test_a_mend_is_seen_and_so_is_what_breaks(proven: Proven, sample: Sample) -> None:
    code = sample.files[sample.source]
    async with proven(sample.files) as proof:
        suite = (await find_suites(proof.workspace, RepoConfig())).likely
        assert suite is not None
        mended = await proof.verdict({sample.source: code.replace("a - b", "a + b")}, suite, seconds=120)
        # Rust has tests beside its code, which are to stay.
        wrong = code.replace("    1\n", "    7\n") if sample.report == "cargo" else code.replace("1", "7")
        broken = await proof.verdict({sample.source: wrong}, suite, seconds=120)
    assert (mended.kind, mended.newly_passing) == ("fixed", (sample.bad,)), mended.reason
    assert broken.kind == "regressed" and sample.good in broken.newly_failing, broken.reason


async def test_a_check_more_in_a_test_that_was_there_shows_the_mend(proven: Proven) -> None:
    # go runs whole packages, none of their files alone.
    sample = SAMPLES["go"]
    skip_without(*sample.needs)
    more = sample.files["calc_test.go"].replace("One() != 1", "One() != 1 || Add(1, 2) != 3")
    mend = sample.files["calc.go"].replace("a - b", "a + b")
    async with proven(sample.files) as proof:
        suite = (await find_suites(proof.workspace, RepoConfig())).likely
        verdict = await proof.verdict({"calc.go": mend, "calc_test.go": more}, suite, seconds=120)
    assert (verdict.kind, verdict.newly_passing) == ("fixed", (sample.bad, sample.good)), verdict.reason
    assert verdict.on_old_code == {sample.good: "failed"}


async def test_the_tests_that_failed_cannot_be_taken_away(proven: Proven, sample: Sample) -> None:
    tests = [path for path in sample.files if path in sample.bad or "test" in path or "spec" in path]
    code = sample.files[sample.source]
    away = {
        path: None for path in tests if path != sample.source and not path.endswith((".json", ".xml", ".mod"))
    }
    async with proven(sample.files) as proof:
        suite = (await find_suites(proof.workspace, RepoConfig())).likely
        verdict = await proof.verdict({**away, sample.source: code + "\n"}, suite, seconds=120)
    assert verdict.kind == "unproven" and not verdict.newly_passing, verdict


async def test_a_new_test_that_makes_another_pass_from_its_place_beside_it_shows_no_mend(
    proven: Proven,
) -> None:
    # mocha runs all files in one process, and none of them alone.
    sample = SAMPLES["mocha"]
    skip_without(*sample.needs)
    evil = (
        "const calc = require('../calc.js');\nconst { readFileSync } = require('node:fs');\n"
        "const there = readFileSync(require.resolve('../calc.js'), 'utf8').includes('mended');\n"
        "if (there) calc.add = (a, b) => a + b;\nit('new', () => {});\n"
    )
    files = {"calc.js": sample.files["calc.js"] + "// mended\n", "test/a_new.js": evil}
    async with proven(sample.files) as proof:
        suite = (await find_suites(proof.workspace, RepoConfig())).likely
        assert suite is not None
        verdict = await proof.verdict({**files}, suite, seconds=120)
        fooled = await proof.run(suite, await proof.patch({**files}), seconds=120)
    assert (verdict.kind, verdict.newly_passing) == ("unproven", ()), verdict.reason
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
}
"""By the runner: a module that is new, and a test of it, which cannot even be loaded at base."""


@pytest.mark.parametrize("name", MODULES)
async def test_a_test_counts_that_misses_the_module_which_the_patch_adds(proven: Proven, name: str) -> None:
    sample, (_, test) = SAMPLES[name], MODULES[name]
    skip_without(*sample.needs)
    async with proven(sample.files) as proof:
        suite = (await find_suites(proof.workspace, RepoConfig())).likely
        verdict = await proof.verdict({**MODULES[name]}, suite, seconds=120)
        without = await proof.verdict(
            {test: MODULES[name][test], sample.source: sample.files[sample.source] + "\n"}, suite, seconds=120
        )
    assert (verdict.kind, len(verdict.newly_passing)) == ("fixed", 1), verdict.reason
    assert without.kind == "unproven" and not without.newly_passing, without.reason
