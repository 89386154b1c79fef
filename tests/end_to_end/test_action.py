"""A workflow step opens the same pull request from an event file."""

import pytest

from tests.end_to_end.conftest import CODE, FIX_TURNS, Scenario


async def test_a_workflow_step_opens_the_same_pull_request_and_sets_its_outputs(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    delivery = await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
    code, out, error = await scenario.command("action", environment=scenario.event(delivery))
    assert code == 0, out + error
    assert scenario.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert not scenario.pull.draft
    output = (scenario.data / "output").read_text()
    for expected in ("published", "fixed", "patchwright/issue-1", "/acme/calc/pull/2"):
        assert expected in output
    assert "fixed" in (scenario.data / "summary.md").read_text()


async def test_an_event_without_a_request_needs_no_model(scenario: Scenario) -> None:
    scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    delivery = await scenario.fake_github.add_label(scenario.issue, "question", by="maintainer")
    del scenario.environment["PATCHWRIGHT_MODEL"]
    nowhere = {"GITHUB_OUTPUT": "", "GITHUB_STEP_SUMMARY": ""}
    code, out, _ = await scenario.command("action", environment=scenario.event(delivery) | nowhere)
    assert (code, scenario.comments) == (0, [])
    assert "Nothing to do" in out


@pytest.mark.slow
async def test_an_unreachable_model_ends_a_workflow_step_before_a_sandbox_is_made(scenario: Scenario) -> None:
    scenario.environment["PATCHWRIGHT_MODEL_BASE_URL"] = "http://127.0.0.1:9/v1"
    scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    delivery = await scenario.fake_github.open_issue(
        scenario.repo, title="Slow", body="@agent make it fast", by="maintainer"
    )
    code, out, _ = await scenario.command("action", environment=scenario.event(delivery))
    sentence = "The model's endpoint 127.0.0.1:9 cannot be reached (connection refused)."
    assert (code, sentence in out, scenario.runs) == (2, True, ())
    (comment,) = scenario.repo.comments(2)
    assert sentence in comment.body


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PATCHWRIGHT_MODEL_API_KEY", "PATCHWRIGHT_MAX_USD"])
async def test_a_stranger_hears_nothing_about_an_incomplete_setup(scenario: Scenario, name: str) -> None:
    scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    scenario.environment |= {
        "PATCHWRIGHT_MODEL": "anthropic/claude-sonnet-5",
        name: "two" if "USD" in name else "",
    }
    found = []
    for by in ("stranger", "maintainer"):
        delivery = await scenario.fake_github.add_comment(scenario.issue, "@agent fix it", by=by)
        code, _, _ = await scenario.command("action", environment=scenario.event(delivery))
        found.append((code, scenario.comments[-1].split(".")[0]))
    assert found[0] == (4, "@stranger needs write access to start a run")
    assert found[1][0] == 2 and "write access" not in found[1][1]


@pytest.mark.slow
async def test_a_workflow_replies_to_unsupported_commands_without_a_model(
    scenario: Scenario,
) -> None:
    scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    del scenario.environment["PATCHWRIGHT_MODEL"]
    output = ("@agent stop", "maintainer"), ("@agent stop", "stranger"), ("@agent hlep", "maintainer")
    for text, by in (*output, ("@agent help", "stranger")):
        delivery = await scenario.fake_github.add_comment(scenario.issue, text, by=by)
        code, out, error = await scenario.command("action", environment=scenario.event(delivery))
        assert code == 0, out + error
    stopped, refused, slip, helped = scenario.comments[1::2]
    assert stopped == (
        "I run in a GitHub Actions workflow here, which a comment cannot stop. If a run was in progress here, it "
        "ended before I read this. To stop a run, cancel it in [the list of workflow runs]"
        f"({scenario.fake_github.server_url}/acme/calc/actions). I then save the work so far to a branch.\n"
    )
    assert refused.startswith("@stranger needs write access to stop a run")
    assert "`hlep` is not a command. Did you mean `help`?" in slip
    assert helped.startswith("I understand these commands")
    assert (scenario.data / "output").read_text().count("answered") == 4


@pytest.mark.slow
async def test_a_second_attempt_with_a_wrong_setting_keeps_the_comment_with_the_result(
    scenario: Scenario,
) -> None:
    await scenario.script_model(*FIX_TURNS)
    scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    delivery = await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
    run = {"PATCHWRIGHT_WORKFLOW_URL": "https://github.test/runs/7", "GITHUB_REPOSITORY": "acme/calc"}
    await scenario.command("action", environment=scenario.event(delivery) | run)
    (result,) = scenario.comments
    wrong = {"PATCHWRIGHT_MODEL": "opnai/x"}
    for _ in range(2):
        code, _, _ = await scenario.command("action", environment=scenario.event(delivery) | run | wrong)
        kept, failure = scenario.comments
        assert (code, kept) == (2, result)
        assert failure.startswith("**Not done.** ") and "opnai" in failure
        assert "This was another attempt; the earlier one has its own comment." in failure
        assert "I proposed no change." not in failure
