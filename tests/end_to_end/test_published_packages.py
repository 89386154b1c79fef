"""Two more published releases with a real bug, each fixed by a run that never sees the tests of the release after it.

sqlparse 0.6.0 writes PHP in which dollars of the statement are interpolated (fixed in 0.6.1), and minimist 1.2.7
treats a dash after a long option as a missing value (fixed in 1.2.8). Issues and changes were written for these
tests; the suite of the fixed release verifies them.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import ReplaceText, RunShell
from tests.end_to_end.source_releases import cli_environment, download_source, run_git
from tests.preloaded_command import preloaded_command

pytestmark = pytest.mark.slow


async def resolve_release(
    tree: Path, issue: str, script: Sequence[RecordedTurn], place: Path, *options: str, **environ: str
) -> tuple[dict[str, Any], Path]:
    """Runs `patchwright resolve` and returns its output and its patch."""
    run_git(tree, "init", "--quiet", "--initial-branch=main")
    run_git(tree, "add", "--all", "--force")
    run_git(tree, "commit", "--quiet", "-m", "The release as it was published")
    issue_file, fix = place / "issue.md", place / "fix.diff"
    issue_file.write_text(issue)
    async with RecordedModel(script, key="sk-published") as endpoint:
        process = await asyncio.create_subprocess_exec(
            *preloaded_command(), "resolve", "--repo", str(tree), "--issue", str(issue_file), "--json",
            "--out", str(fix), "--model", "openai/scripted", "--base-url", endpoint.base_url, *options,
            env=cli_environment(place) | environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(280):
            out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    outcome: dict[str, Any] = json.loads(out)
    assert outcome["steps"] == len(script)
    return outcome, fix


def run(tree: Path, *command: str, **environ: str) -> tuple[int, str]:
    """Returns exit code and output of the later release's tests."""
    done = subprocess.run(
        command, cwd=tree, capture_output=True, text=True, timeout=200, env={**os.environ, **environ}
    )
    return done.returncode, done.stdout + done.stderr


# --- Python ---------------------------------------------------------------------------------------------------------

SQLPARSE = ("sqlparse", "0.6.0", "113c35c75365ab9cc9c7231d68c6428fb11c085fc8e9eb1ad659b7ddbf6cd2b9")
SQLPARSE_FIXED = ("sqlparse", "0.6.1", "ca722573f848ff2d30e40ea30f53a104b7dea7635ea9285891263eb2c58fb6e7")

DOLLARS = """\
# `format(..., output_format="php")` lets PHP interpolate what stands in the statement

The PHP that comes out puts the statement into double quotes, where PHP replaces `$name`, `${name}` and `{$name}`:

```python
>>> print(sqlparse.format("select '$name'", output_format="php"))
$sql = "select '$name'";
```

Running that sends another statement than I gave, and a statement from outside could run an expression. I expect
`\\$name` there, so that PHP's string is the statement I gave. The name of the variable itself must stay `$sql`.
"""
SEE_DOLLAR = RunShell(
    command="cat >/tmp/seen.py <<'X'\nimport sqlparse\n\n"
    "made = sqlparse.format(\"select '$name'\", output_format='php')\nprint(made)\n"
    "assert made.startswith('$sql = ') and '\\\\$name' in made\nX\nPYTHONPATH=. python3 /tmp/seen.py"
)
SQLPARSE_SCRIPT = (
    RecordedTurn("First I want to see it fail.", SEE_DOLLAR),
    RecordedTurn("Where is the string made?", RunShell(command="grep -n 'replace(' sqlparse/filters/output.py")),
    RecordedTurn(
        "Quotes and backslashes are escaped, dollars are not.",
        ReplaceText(
            path="sqlparse/filters/output.py",
            old="""token.value.replace('\\\\', '\\\\\\\\').replace('"', '\\\\"')""",
            new="""re.sub(r'[\\\\"$]', r'\\\\\\g<0>', token.value)""",
        ),
        ReplaceText(
            path="sqlparse/filters/output.py",
            old="from sqlparse import sql\n",
            new="import re\n\nfrom sqlparse import sql\n",
        ),
    ),
    RecordedTurn("Again.", SEE_DOLLAR),
    RecordedTurn("Keep it by a test.", ReplaceText(
        path="tests/test_format.py",
        old="    def test_php_escapes_backslashes(self):",
        new="    def test_php_does_not_interpolate(self):\n"
        "        made = sqlparse.format('select \\'$a {$b}\\'', output_format='php')\n"
        "        assert made == '$sql = \"select \\'\\\\$a {\\\\$b}\\'\";'\n\n"
        "    def test_php_escapes_backslashes(self):",
    )),
    RecordedTurn("Run everything.", RunShell(command="python3 -m pytest -q 2>&1 | tail -n 5")),
    RecordedTurn(
        "All green.",
        Finish(
            cause="In PHP's double quotes a dollar begins a variable; quotes and backslashes were escaped, it was not.",
            change="All three are escaped, in one go, so that no escape is escaped again.",
            testing="The issue's example fails before and passes now; the suite passes with the new test.",
        ),
    ),
)  # fmt: skip


@pytest.mark.docker
async def test_a_published_python_release_is_fixed_and_passes_the_next_releases_tests(
    short_tmp: Path,
) -> None:
    tree = await asyncio.to_thread(download_source, SQLPARSE, short_tmp / "buggy")
    later = await asyncio.to_thread(download_source, SQLPARSE_FIXED, short_tmp / "fixed")
    (tree / ".github").mkdir(exist_ok=True)
    (tree / ".github" / "patchwright.toml").write_text('setup = ""\n')  # it needs only pytest
    outcome, fix = await resolve_release(tree, DOLLARS, SQLPARSE_SCRIPT, short_tmp, "--sandbox", "docker")
    assert (outcome["verdict"], outcome["pass_to_fail"]) == ("fixed", [])
    new = "tests/test_format.py::TestOutputFormat::test_php_does_not_interpolate"
    assert outcome["fail_to_pass"] == [new]

    shutil.copytree(later / "tests", tree / "tests", dirs_exist_ok=True)
    suite = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_format.py")
    code, printed = await asyncio.to_thread(run, tree, *suite, PYTHONPATH=str(tree))
    assert code == 1 and "9 failed" in printed, printed
    run_git(tree, "apply", "--include=sqlparse/*", str(fix))
    code, printed = await asyncio.to_thread(run, tree, *suite, PYTHONPATH=str(tree))
    assert code == 0, printed


# --- JavaScript -----------------------------------------------------------------------------------------------------

DASH = """\
# A dash behind a long option is no value

`-` usually means standard input. Behind a short option it is taken as the value, behind a long one it is not:

```js
> require('minimist')(['-n', '-'])
{ _: [], n: '-' }
> require('minimist')(['--name', '-'])
{ _: [ '-' ], name: true }
```

I would expect `{ _: [], name: '-' }`.
"""
SEE_DASH = RunShell(
    command="node -e \"const a = require('./index.js')(['--name', '-']); console.log(a);"
    " require('assert').deepStrictEqual(a, { _: [], name: '-' })\""
)
MINIMIST_SCRIPT = (
    RecordedTurn("First I want to see it fail.", SEE_DASH),
    RecordedTurn("Where is the next word looked at?", RunShell(command="grep -n 'next' index.js")),
    RecordedTurn(
        "A long option refuses whatever begins with a dash; a short one only a dash with something behind it.",
        ReplaceText(
            path="index.js",
            old="if (next !== undefined && !/^-/.test(next)",
            new="if (next !== undefined && !/^(-|--)[^-]/.test(next)",
        ),
    ),
    RecordedTurn("Again.", SEE_DASH),
    RecordedTurn("Keep it by a test.", ReplaceText(
        path="test/dash.js",
        old="test('-a -- b'",
        new="test('a dash behind a long option is its value', function (t) {\n    t.plan(1);\n"
        "    t.deepEqual(parse([ '--name', '-' ]), { name: '-', _: [] });\n});\n\ntest('-a -- b'",
    )),
    RecordedTurn("Run everything.", RunShell(command="tape 'test/*.js' | tail -n 6")),
    RecordedTurn(
        "All green.",
        Finish(
            cause="For a long option anything that begins with a dash was taken for another option.",
            change="A single dash is a value there too, as it is behind a short option.",
            testing="The issue's example fails before and passes now; the suite passes with the new test.",
        ),
    ),
)  # fmt: skip
CONFIG = """\
setup = ""
test_command = "tape 'test/*.js'"
"""


def download_package(version: str, place: Path) -> Path:
    """Downloads and unpacks the release from npm's configured registry."""
    place.mkdir()
    subprocess.run(["npm", "pack", "--silent", f"minimist@{version}"], cwd=place, check=True, timeout=120)
    archive = place / f"minimist-{version}.tgz"
    unpack = ["tar", "--extract", "--no-same-owner", "--directory", str(place), "--file", str(archive)]
    subprocess.run(unpack, check=True, timeout=60)
    return place / "package"


@pytest.mark.internet("npm downloads the releases")
async def test_a_published_javascript_release_is_fixed_and_passes_the_next_releases_tests(
    short_tmp: Path,
) -> None:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm: apt-get install npm")
    tree = await asyncio.to_thread(download_package, "1.2.7", short_tmp / "buggy")
    later = await asyncio.to_thread(download_package, "1.2.8", short_tmp / "fixed")
    (tree / ".github").mkdir(exist_ok=True)
    (tree / ".github" / "patchwright.toml").write_text(CONFIG)
    # The local sandbox uses this machine: node also searches for packages in parent directories.
    install = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "tape@5.6.1")
    (short_tmp / "package.json").write_text("{}")
    await asyncio.to_thread(run, short_tmp, *install)
    path = f"{short_tmp}/node_modules/.bin:{os.environ['PATH']}"
    outcome, fix = await resolve_release(
        tree, DASH, MINIMIST_SCRIPT, short_tmp, "--sandbox", "local", PATH=path
    )
    assert (outcome["verdict"], outcome["pass_to_fail"]) == ("fixed", [])
    assert outcome["fail_to_pass"] == ["a dash behind a long option is its value"]

    shutil.copytree(later / "test", tree / "test", dirs_exist_ok=True)
    code, printed = await asyncio.to_thread(run, tree, "tape", "test/dash.js", PATH=path)
    assert code == 1 and "not ok" in printed, printed
    run_git(tree, "apply", "--include=index.js", str(fix))
    code, printed = await asyncio.to_thread(run, tree, "tape", "test/dash.js", PATH=path)
    assert code == 0, printed
