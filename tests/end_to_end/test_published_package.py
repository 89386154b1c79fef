"""Real input: a published release with a real bug, fixed by a run that never sees the tests of the release after it.

`parse` 1.20.1 does not know a field whose name has a hyphen; 1.20.2 does. The issue text and the
scripted change were written for this test; the suite of 1.20.2 verifies the change.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.tool_actions.control_actions import Finish, Think
from patchwright.runtime.actions import CreateFile, ReplaceText, RunShell, ViewFile
from tests.end_to_end.source_releases import cli_environment, download_source, run_git
from tests.preloaded_command import preloaded_command

BUGGY = ("parse", "1.20.1", "09002ca350ad42e76629995f71f7b518670bcf93548bdde3684fd55d2be51975")
FIXED_RELEASE = ("parse", "1.20.2", "b41d604d16503c79d81af5165155c0b20f6c8d6c559efa66b4b695c3e5a0a0ce")
"""Name, version, and SHA-256 of the source release."""

ISSUE = """\
# A field whose name has a hyphen is never matched

Our URL templates come from an OpenAPI document, where parameters are called `user-id` and the like. `parse` does
not match them, and does not complain either:

```python
>>> import parse
>>> print(parse.parse("/users/{user-id}/mail", "/users/42/mail"))
None
>>> parse.parse("/users/{user_id}/mail", "/users/42/mail")["user_id"]
'42'
```

I would like to read `result["user-id"]`. It should also work when a template has `{user-id}`, `{user_id}` and
`{user.id}` side by side: dots and underscores are told apart today.
"""

REPRODUCE = RunShell(
    command=(
        "python3 -c \"import parse; print(parse.parse('/users/{user-id}/mail', '/users/42/mail'));"
        " print(parse.Parser('/users/{user-id}')._expression)\""
    )
)
FIELDS = ReplaceText(
    path="parse.py",
    old=r'PARSE_RE = re.compile(r"({{|}}|{\w*(?:\.\w+|\[[^]]+])*(?::[^}]+)?})")',
    new=r'PARSE_RE = re.compile(r"({{|}}|{(?:\w[\w-]*)?(?:\.\w[\w-]*|\[[^]]+])*(?::[^}]+)?})")',
)
STEM = ReplaceText(
    path="parse.py",
    old="""\
        # return a version of field which can be used as capture group, even
        # though it might contain '.'
        group = field.replace(".", "_").replace("[", "_").replace("]", "_")
""",
    new="""\
        # return a version of field which can be used as capture group, even
        # though it might contain '-', '.', '[' or ']'
        group = re.sub(r"\\W", "_", field)
""",
)
COLLISIONS = ReplaceText(
    path="parse.py",
    old="""\
            n += 1
            if "." in field:
                group = field.replace(".", "_" * n)
            elif "_" in field:
                group = field.replace("_", "_" * n)
            else:
                raise KeyError("duplicated group name %r" % (field,))
""",
    new="""\
            n += 1
            if "_" not in group:
                raise KeyError("duplicated group name %r" % (field,))
            group = re.sub(r"[\\W_]", "_" * n, field)
""",
)
NARROW = (
    ReplaceText(path="parse.py", old='re.sub(r"\\W", "_", field)', new='re.sub(r"[-.\\[\\]]", "_", field)'),
    ReplaceText(path="parse.py", old='re.sub(r"[\\W_]", "_" * n', new='re.sub(r"[-._\\[\\]]", "_" * n'),
)
NEW_TESTS = CreateFile(
    path="tests/test_hyphen.py",
    content="""\
import pytest

import parse


def test_a_hyphen_may_be_part_of_a_name():
    result = parse.parse("/users/{user-id:d}/mail/{box-name}", "/users/42/mail/in")
    assert result.named == {"user-id": 42, "box-name": "in"}


@pytest.mark.parametrize("names", [("a-b", "a_b", "a.b"), ("a.b", "a-b", "a_b"), ("a_b", "a-b-c", "a-b_c")])
def test_names_that_differ_only_in_punctuation_are_distinguished(names):
    result = parse.parse("{%s} {%s} {%s}" % names, "1 2 3")
    assert [result[name] for name in names] == ["1", "2", "3"]


def test_a_hyphen_that_is_no_name_stays_text():
    assert parse.parse("{}-{}", "1-2").fixed == ("1", "2")
    assert parse.parse("{-}", "{-}") is not None
""",
)
RUN = RunShell(command="python3 -m pytest -q 2>&1 | tail -n 15")

SCRIPT = (
    RecordedTurn("What is here?", RunShell(command="ls && git log --oneline | head -n 3 && wc -l parse.py")),
    RecordedTurn("First I want to see it fail.", REPRODUCE),
    RecordedTurn(
        "The field stays plain text in the expression. Where are fields found?",
        RunShell(command="grep -n 'PARSE_RE\\|_to_group_name\\|_name_to_group_map' parse.py"),
    ),
    RecordedTurn(
        "Read both places.",
        ViewFile(path="parse.py", start=396, end=403),
        ViewFile(path="parse.py", start=601, end=680),
    ),
    RecordedTurn("The pattern of a field has no hyphen. Let it have one.", FIELDS),
    RecordedTurn("Again.", REPRODUCE),
    RecordedTurn(
        "Now the hyphen gets into the name of a capture group, which cannot hold it.",
        Think(thought="The name must become word characters, and two names that become the same be told apart."),
        STEM,
        COLLISIONS,
    ),
    RecordedTurn("And now?", REPRODUCE),
    RecordedTurn("It matches. Keep that by tests.", NEW_TESTS),
    RecordedTurn("Run everything.", RUN),
    RecordedTurn("A quote in a name was refused on purpose: only what may be in a name is to be replaced.", *NARROW),
    RecordedTurn("Once more.", RUN),
    RecordedTurn(
        "All green.",
        Finish(
            cause="The pattern that finds fields in a template knew no hyphen, so `{user-id}` was taken as plain text.",
            change="Names may have hyphens; for the capture group hyphens become underscores as dots do, repeated"
            " until the group is unique.",
            testing="The issue's example gives `42`; `python3 -m pytest` passes with the new tests.",
        ),
    ),
)  # fmt: skip


def run_tests(tree: Path) -> tuple[int, str]:
    """Returns the exit code of pytest in the tree, and the end of its output."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tree),
        "tests",
    ]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout[-2000:]


@pytest.mark.docker
@pytest.mark.slow
async def test_a_published_release_is_fixed_and_passes_the_next_releases_tests(short_tmp: Path) -> None:
    tree = await asyncio.to_thread(download_source, BUGGY, short_tmp / "buggy")
    later = await asyncio.to_thread(download_source, FIXED_RELEASE, short_tmp / "fixed")
    run_git(tree, "init", "--quiet", "--initial-branch=main")
    run_git(tree, "add", "--all", "--force")
    run_git(tree, "commit", "--quiet", "-m", "Release 1.20.1")
    issue, fix = short_tmp / "issue.md", short_tmp / "fix.diff"
    issue.write_text(ISSUE)

    async with RecordedModel(SCRIPT, key="sk-published") as endpoint:
        process = await asyncio.create_subprocess_exec(
            *preloaded_command(), "resolve", "--repo", str(tree), "--issue", str(issue), "--json",
            "--out", str(fix), "--sandbox", "docker", "--model", "openai/scripted", "--base-url", endpoint.base_url,
            env=cli_environment(short_tmp), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(240):
            out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    outcome = json.loads(out)
    assert (outcome["verdict"], outcome["steps"], outcome["pass_to_fail"]) == ("fixed", len(SCRIPT), [])
    assert outcome["fail_to_pass"] == [
        "tests/test_hyphen.py::test_a_hyphen_may_be_part_of_a_name",
        *(
            f"tests/test_hyphen.py::test_names_that_differ_only_in_punctuation_are_distinguished[names{n}]"
            for n in range(3)
        ),
    ]
    assert "1.20.2" not in json.dumps(endpoint.requests[-1]["messages"])

    # The release with the fix agrees; its tests fail without the patch.
    shutil.rmtree(tree / "tests")
    shutil.copytree(later / "tests", tree / "tests")
    code, printed = run_tests(tree)
    assert code == 1 and "2 failed" in printed, printed
    run_git(tree, "checkout", "--quiet", "--force", "HEAD")
    run_git(tree, "apply", str(fix))
    shutil.copytree(later / "tests", tree / "tests", dirs_exist_ok=True)
    code, printed = run_tests(tree)
    assert code == 0, printed
