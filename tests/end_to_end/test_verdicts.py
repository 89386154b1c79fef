"""The verdict on a patch decides what is published."""

from collections.abc import Callable

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.branch_names import make_branch_names
from patchwright.resolver.domain import InputRequired, Published, Rejected, Reported
from patchwright.resolver.events import Message
from patchwright.runtime.actions import CreateFile, ReplaceText, RunShell
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, NEW_TEST, RUN_TESTS, Scenario

BREAK = ReplaceText(path="calc.py", old="a * 2", new="a * 3")


async def test_a_fixed_verdict_becomes_a_ready_pull_request_with_a_table(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published)
    assert (outcome.verdict.kind, outcome.draft, outcome.branch) == ("fixed", False, "patchwright/issue-1")
    assert outcome.verdict.fail_to_pass == ("tests/test_calc.py::test_add",)
    assert scenario.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    pull = scenario.pull
    assert (pull.title, pull.draft) == ("Fix: add(2, 3) gives -1", False)
    assert pull.body is not None
    assert pull.body.startswith("**Fixed:** 1 new test fails without this change and passes with it")
    assert (
        "| passed | 1 | 2 |\n| failed | 0 | 0 |\n| new tests, without and with the change | 1 failed | 1 passed |"
        in pull.body
    )
    assert pull.body.rstrip().endswith("Fixes #1")
    (comment,) = scenario.comments
    assert comment.startswith("I opened pull request #2.")


@pytest.mark.slow
async def test_the_default_branch_may_have_any_name(scenario: Scenario) -> None:
    scenario.repo.bare.git("branch", "--move", "main", "release/trunk")
    scenario.repo.bare.git("symbolic-ref", "HEAD", "refs/heads/release/trunk")
    scenario.repo.default_branch = "release/trunk"
    await scenario.script_model(*FIX_TURNS)
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published)
    assert (scenario.pull.base.ref, scenario.pull.head.ref) == ("release/trunk", "patchwright/issue-1")
    assert scenario.repo.branches == ("patchwright/issue-1", "release/trunk")


@pytest.mark.slow
async def test_a_patch_that_breaks_a_test_is_saved_on_a_branch_and_reported(scenario: Scenario) -> None:
    # Rejected twice, the model insists.
    insists = RecordedTurn("It is right.", DONE)
    await scenario.script_model(
        RecordedTurn("Fix.", FIX, BREAK), RecordedTurn("Done.", DONE), insists, insists
    )
    outcome = await scenario.resolve()
    assert isinstance(outcome, Reported)
    assert outcome.verdict.pass_to_fail == ("tests/test_calc.py::test_double",)
    assert scenario.repo.pulls == ()
    assert "a * 3" in scenario.repo.read("patchwright/issue-1", "calc.py")
    (comment,) = scenario.comments
    assert "I opened no pull request." in comment
    assert "- `tests/test_calc.py::test_double`" in comment
    assert "The work is on the branch `patchwright/issue-1`." in comment


@pytest.mark.slow
async def test_a_patch_that_breaks_a_test_is_returned_to_the_agent_for_repair(scenario: Scenario) -> None:
    repair = ReplaceText(path="calc.py", old="a * 3", new="a * 2")
    await scenario.script_model(
        RecordedTurn("Fix.", FIX, NEW_TEST, BREAK),
        RecordedTurn("Done.", DONE),
        RecordedTurn("Oh.", repair),
        RecordedTurn("Done.", DONE),
    )
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published)
    assert outcome.verdict.kind == "fixed"
    (message,) = [
        e.text for e in scenario.trajectory() if isinstance(e, Message) and e.source == "verification"
    ]
    assert "breaks tests that passed before it:\n  tests/test_calc.py::test_double" in message
    assert "assert 12 == 8" in message  # with the output that shows the reason


@pytest.mark.slow
async def test_without_tests_the_pull_request_is_a_draft_that_says_so(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files={"calc.py": CODE})
    await scenario.script_model(RecordedTurn("Fix.", FIX), RecordedTurn("Done.", DONE))
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published)
    assert (outcome.verdict.kind, scenario.pull.draft) == ("untested", True)
    assert scenario.pull.body is not None
    assert scenario.pull.body.startswith("**Untested:**")


@pytest.mark.slow
async def test_a_new_test_that_asserts_nothing_proves_nothing(scenario: Scenario) -> None:
    vain = CreateFile(path="tests/test_new.py", content="def test_new():\n    assert True\n")
    await scenario.script_model(RecordedTurn("Fix.", FIX, vain), RecordedTurn("Done.", DONE))
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published)
    assert (outcome.verdict.kind, scenario.pull.draft) == ("unproven", True)
    assert scenario.pull.body is not None
    assert scenario.pull.body.startswith("**Unproven:**")


@pytest.mark.slow
async def test_an_agent_that_is_told_that_its_fix_is_unproven_adds_a_test(scenario: Scenario) -> None:
    await scenario.script_model(
        RecordedTurn("Fix.", FIX, RUN_TESTS),
        RecordedTurn("Done.", DONE),
        RecordedTurn("Right, a test.", NEW_TEST, RUN_TESTS),
        RecordedTurn("Done.", DONE),
    )
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published) and (outcome.verdict.kind, outcome.draft) == ("fixed", False)
    (text,) = [e.text for e in scenario.trajectory() if isinstance(e, Message) and e.source == "verification"]
    assert "Add a test that fails without your change and passes with it." in text


@pytest.mark.slow
async def test_an_existing_test_that_now_expects_something_else_makes_a_draft(scenario: Scenario) -> None:
    changed = ReplaceText(path="tests/test_calc.py", old="double(4) == 8", new="double(4) == 12")
    await scenario.script_model(
        RecordedTurn("Fix.", FIX, NEW_TEST, BREAK, changed), RecordedTurn("Done.", DONE, )
    )  # fmt: skip
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published) and (outcome.verdict.kind, outcome.draft) == ("conditional", True)
    assert scenario.pull.body is not None
    assert scenario.pull.body.startswith("**Fixed, if you agree to the changes to the tests:**")
    text = "`test_double` now expects something else; its old version fails with this change ([`"
    assert scenario.pull.body.count(text) == 2  # above the fold, and in the test evidence
    assert "  -    assert double(4) == 8\n  +    assert double(4) == 12\n" in scenario.pull.body
    (text,) = [e.text for e in scenario.trajectory() if isinstance(e, Message) and e.source == "verification"]
    assert "- `test_double` now expects something else; its old version fails with this change." in text


@pytest.mark.slow
async def test_without_a_change_a_comment_gives_the_reason(scenario: Scenario) -> None:
    await scenario.script_model(RecordedTurn("Look.", RUN_TESTS), RecordedTurn("Nothing to do.", DONE))
    outcome = await scenario.resolve()
    assert isinstance(outcome, Reported)
    assert (outcome.verdict.kind, outcome.branch, scenario.repo.branches) == ("empty", None, ("main",))
    (comment,) = scenario.comments
    assert comment.startswith("**No pull request:** the run ended without a change to the code.")


@pytest.mark.slow
async def test_a_run_at_its_limit_still_publishes_a_proven_fix(scenario: Scenario) -> None:
    scenario.environment["PATCHWRIGHT_MAX_STEPS"] = "2"
    await scenario.script_model(*FIX_TURNS)
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published)
    assert outcome.verdict.kind == "fixed"
    assert scenario.pull.body is not None
    first, verdict, *_ = scenario.pull.body.split("\n\n")
    assert first == (
        "**Stopped early:** The limit on model replies is reached (2). This is the work up to that point."
    )
    assert verdict.startswith("**Fixed:**")
    assert (
        "- The agent stopped before it described its work. Check that the change is complete."
        in scenario.pull.body
    )
    (comment,) = scenario.comments
    assert comment.startswith("**Stopped early:** The limit on model replies is reached (2).")


@pytest.mark.slow
async def test_a_workflow_change_is_excluded_and_the_rest_is_verified_and_published(
    scenario: Scenario,
) -> None:
    workflow = CreateFile(path=".github/workflows/ci.yml", content="on: push\n")
    await scenario.script_model(
        RecordedTurn("Fix.", FIX, NEW_TEST, workflow),
        RecordedTurn("Done.", DONE),
        RecordedTurn("Done.", DONE),
    )
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed"
    changed = scenario.repo.bare.diff("main", scenario.pull.head.sha, "--name-only").split()
    assert changed == ["calc.py", "tests/test_calc.py"]
    assert (
        "- Not included: Only maintainers may change .github/workflows/ci.yml, because this file "
        "runs in CI. Apply this change yourself if you want it.\n" in str(scenario.pull.body)
    )
    assert str(scenario.pull.body).endswith("\nPart of #1\n")


@pytest.mark.slow
async def test_a_change_that_needs_an_excluded_file_is_verified_without_it(scenario: Scenario) -> None:
    # With the file that only maintainers may change, the new test would pass.
    reads = "import pathlib\n\n\ndef test_ci():\n    assert 'push' in pathlib.Path('.gitlab-ci.yml').read_text()\n"
    await scenario.script_model(
        RecordedTurn("CI.", CreateFile(path=".gitlab-ci.yml", content="push\n")),
        RecordedTurn("Test it.", CreateFile(path="tests/test_ci.py", content=reads)),
        *[RecordedTurn("Done.", DONE)] * 4,
    )  # fmt: skip
    outcome = await scenario.resolve()
    assert not isinstance(outcome, Rejected | InputRequired) and outcome.verdict.kind not in (
        "fixed",
        "empty",
    )


@pytest.mark.slow
async def test_a_change_to_only_a_workflow_is_only_reported(scenario: Scenario) -> None:
    workflow = CreateFile(path=".github/workflows/ci.yml", content="on: push\n")
    await scenario.script_model(
        RecordedTurn("Fix.", workflow), RecordedTurn("Done.", DONE), RecordedTurn("Done.", DONE)
    )
    outcome = await scenario.resolve()
    assert isinstance(outcome, Reported)
    assert (scenario.repo.branches, scenario.repo.pulls) == (("main",), ())
    (comment,) = scenario.comments
    assert comment.startswith("**No pull request:** the repository's policy does not allow this change.")
    assert "Only maintainers may change .github/workflows/ci.yml, because this file runs in CI." in comment


async def test_a_requester_without_write_access_gets_only_a_reply(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    outcome = await scenario.resolve(scenario.job(requester="triager"))
    assert isinstance(outcome, Rejected)
    assert scenario.endpoint.requests == []
    (comment,) = scenario.comments
    assert comment.startswith("@triager needs write access to start a run")
    assert [write.method for write in scenario.fake_github.writes] == ["POST"]


@pytest.mark.slow
@pytest.mark.parametrize("locked", [False, True])
async def test_a_permission_revoked_during_the_run_prevents_publishing(
    scenario: Scenario, *, locked: bool
) -> None:
    def revoke(turn: int, body: object) -> None:
        scenario.fake_github.set_role(scenario.repo, "maintainer", "read")
        if locked:
            scenario.fake_github.lock_thread(scenario.issue)

    await scenario.script_model(*FIX_TURNS, on_request=revoke)
    why = "@maintainer no longer has write access. A maintainer can add the label."
    assert await scenario.resolve() == Rejected(explanation=why)
    assert (scenario.repo.branches, scenario.repo.pulls) == (("main",), ())
    (comment,) = scenario.comments
    if not locked:  # otherwise nobody could be notified
        text, bill = comment.strip().split("\n\n")
        assert text == f"I published nothing: {why}"
        assert bill.startswith("cost unknown")


async def test_a_closed_issue_starts_no_run(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    scenario.fake_github.close_silently(scenario.issue)
    assert isinstance(await scenario.resolve(), Rejected)
    assert scenario.endpoint.requests == []


@pytest.mark.slow
async def test_binary_and_non_utf8_files_are_published_unchanged(
    make_scenario: Callable[..., Scenario],
) -> None:
    odd = {
        "logo.bin": bytes(range(256)),
        "läse mich.txt": "größer\n".encode("latin-1"),
        "dos.txt": "a\r\nb\r\n",
    }
    scenario = make_scenario(files={"calc.py": CODE, **odd})
    change = RunShell(
        command=r"printf '\x00\xff\r\n' >> logo.bin; printf 'c\r\n' >> dos.txt; sed -i 's/a - b/a + b/' calc.py"
    )
    await scenario.script_model(RecordedTurn("Fix.", change), RecordedTurn("Done.", DONE))
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published)
    head = scenario.pull.head.sha
    assert scenario.repo.bare.read(head, "logo.bin") == bytes(range(256)) + b"\x00\xff\r\n"
    assert scenario.repo.bare.read(head, "dos.txt") == b"a\r\nb\r\nc\r\n"
    assert scenario.repo.bare.read(head, "läse mich.txt") == odd["läse mich.txt"]


@pytest.mark.slow
async def test_an_earlier_runs_branch_is_never_overwritten(scenario: Scenario) -> None:
    taken = scenario.repo.commit("patchwright/issue-1", {"calc.py": "# somebody's work\n"})
    await scenario.script_model(*FIX_TURNS)
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published)
    taken_too = make_branch_names(
        "issue-{number}", "patchwright/", 1, scenario.issue.title, scenario.job().id
    )
    assert taken_too[0] == "patchwright/issue-1" and outcome.branch == taken_too[1]
    assert scenario.repo.bare.branch_sha("patchwright/issue-1") == taken


@pytest.mark.slow
async def test_the_models_reasoning_is_sent_back_to_it_and_never_posted(scenario: Scenario) -> None:
    thinks = {"reasoning_content": "Between us: the sign is wrong."}
    first, *others = FIX_TURNS
    await scenario.script_model(first.model_copy(update={"reasoning": (thinks,)}), *others)
    assert isinstance(await scenario.resolve(), Published)
    assert "Between us" in str(scenario.trajectory().replies()[0].reasoning)
    assert "Between us" in str(scenario.endpoint.requests[1]["messages"])
    commits = scenario.repo.bare.git("log", "--all", "--format=%B").decode()
    posted = [str(scenario.pull.body), scenario.pull.title, *scenario.comments, commits]
    assert "Fixes #1" in posted[0] and not any("Between us" in text for text in posted)
