"""Real runners whose configuration or command stops at the first failure, and test files that are killed."""

import json

import pytest

from patchwright.resolver.runner_names import RunnerName
from patchwright.resolver.settings.settings import RepoConfig
from patchwright.resolver.suites.discovery import find_suites
from patchwright.resolver.suites.suite import Suite
from tests.resolver.patch_verifier import VerifierFactory
from tests.runners.conftest import skip_without

pytestmark = pytest.mark.slow

JEST = "test('bad', () => { expect(1).toBe(2); });\ntest('good', () => {});\n"
VITEST = "import { expect, test } from 'vitest';\n" + JEST
MOCHA = "it('bad', () => { throw new Error(); });\nit('good', () => {});\n"
TAP = "const t = require('tap');\nt.test('bad', (t) => { t.ok(0); t.end(); });\n"
GO = 'package calc\n\nimport "testing"\n\nfunc TestA(t *testing.T) { t.Fail() }\n'
RSPEC = "RSpec.describe('calc') do\n" + "  it('one') { fail }\n  it('two') { fail }\n" + "end\n"


def package(script: str, **more: object) -> str:
    return json.dumps({"name": "calc", "private": True, "scripts": {"test": script}, **more})


SUITES: dict[str, tuple[dict[str, str], int]] = {
    "jest": (
        {
            "package.json": package(
                "jest -i", jest={"bail": 1, "coverageThreshold": {"global": {"lines": 100}}}
            ),
            "a.test.js": JEST,
            "b.test.js": JEST,
        },
        2,
    ),
    "jest --bail": (
        {"package.json": package("jest -i --bail"), "a.test.js": JEST, "b.test.js": JEST},
        2,
    ),
    "vitest": (
        {
            "package.json": package("vitest run", type="module"),
            "vitest.config.mjs": "export default { test: { bail: 1, fileParallelism: false } };\n",
            "a.test.mjs": VITEST,
            "b.test.mjs": VITEST,
        },
        2,
    ),
    "vitest --bail": (
        {
            "package.json": package("vitest run --bail 1 --no-file-parallelism", type="module"),
            "a.test.mjs": VITEST,
            "b.test.mjs": VITEST,
        },
        2,
    ),
    "mocha": (
        {
            "package.json": package("mocha"),
            ".mocharc.json": '{"bail": true}',
            "test/a.js": MOCHA,
            "test/b.js": MOCHA,
        },
        2,
    ),
    "mocha --bail": (
        {"package.json": package("mocha --bail"), "test/a.js": MOCHA, "test/b.js": MOCHA},
        2,
    ),
    "tap": ({"package.json": package("tap --bail"), "test/a.js": TAP, "test/b.js": TAP}, 2),
    "go": (
        {
            "go.mod": "module example.org/calc\n",
            "calc_test.go": GO + "func TestB(t *testing.T) { t.Fail() }\n",
        },
        2,
    ),
    "rspec": ({".rspec": "--fail-fast\n", "spec/calc_spec.rb": RSPEC}, 2),
}
COMMANDS: dict[str, str] = {"go": "go test -failfast ./...", "rspec": "rspec"}


@pytest.mark.parametrize("name", SUITES)
async def test_every_test_runs_although_the_first_one_fails(
    open_verifier: VerifierFactory, name: str
) -> None:
    runner = name.split()[0]
    skip_without(*(("node", "npm", f"npm:{runner}") if runner not in ("go", "rspec") else (runner,)))
    files, failures = SUITES[name]
    async with open_verifier(files) as verifier:
        suite = (await find_suites(verifier.workspace, RepoConfig())).primary
        if runner in COMMANDS:
            suite = Suite(command=COMMANDS[runner], runner=runner, command_reason="")
        run = await verifier.run(suite, seconds=200)
    assert (run.problem, run.failed_count) == (None, failures), run.output


MOCHA_REPORT = '{"stats": {}, "tests": [{"fullTitle": "a"}], "passes": [{"fullTitle": "a"}], "failures": []}'
OLD_MOCHA = (
    'mocha() { case "$*" in *--no-bail*) echo "error: unknown option --no-bail"; return 1;; esac; '
    f"echo '{MOCHA_REPORT}' >\"$PATCHWRIGHT_REPORT\"; }}; mocha"
)
TAP_REPORT = "TAP version 13\\n    # Subtest: a.js\\n    ok 1 - a\\n    1..1\\nok 1 - a.js\\n1..1\\n"
SILENT_MOCHA = OLD_MOCHA.replace('echo "error: unknown option --no-bail"; ', "")
OLD_TAP = (
    'tap() { if [ $# != 0 ]; then echo "Unknown argument: $1"; return 1; fi; '
    f'[ "$TAP" = 1 ] && printf "{TAP_REPORT}"; }}; tap'
)


@pytest.mark.parametrize(
    ("command", "runner", "test"),
    [(OLD_MOCHA, "mocha", "a"), (SILENT_MOCHA, "mocha", "a"), (OLD_TAP, "tap", "a.js::a")],
    ids=["mocha", "mocha without output", "tap"],
)
async def test_an_old_runner_starts_again_without_unknown_options(
    command: str, runner: RunnerName, test: str, open_verifier: VerifierFactory
) -> None:
    async with open_verifier({"a": ""}) as verifier:
        run = await verifier.run(Suite(command=command, runner=runner, command_reason=""))
    assert (run.problem, run.results) == (None, {test: "passed"})


# Killed in its first run; the marker is outside the work tree, like the cache of a service that was slow once.
KILLED_ONCE = """\
const { existsSync, writeFileSync } = require('node:fs');
const marker = `${process.env.TMPDIR}/marker`;
t.test('after', (t) => {
  if (existsSync(marker)) { t.ok(1, 'calm'); return t.end(); }
  writeFileSync(marker, '');
  process.kill(process.pid, 'SIGKILL');
});
"""


async def test_a_killed_file_runs_again_and_the_others_count(open_verifier: VerifierFactory) -> None:
    skip_without("node", "npm", "npm:tap")
    start = "const t = require('tap');\nt.plan(2);\nt.test('first', (t) => { t.ok(1, 'fine'); t.end(); });\n"
    always = start + "t.test('second', (t) => { process.kill(process.pid, 'SIGKILL'); });\n"
    files = {"test/a.js": start + KILLED_ONCE, "test/b.js": always, "test/c.js": TAP}
    suite = Suite(command="npx tap --disable-coverage", runner="tap", command_reason="")
    async with open_verifier({"package.json": package("tap"), **files}) as verifier:
        run = await verifier.run(suite, seconds=200)
    assert run.problem is None, run.output
    assert run.results == {
        "test/a.js::first": "passed",
        "test/a.js::after": "passed",
        "test/b.js::first": "passed",
        "test/b.js": "error",
        "test/c.js::bad": "failed",
    }, run.output
