"""A review is one job: one commit on the same branch, and a reply in each thread."""

import asyncio
from collections.abc import Callable

import pytest

from patchwright.demo.github import Delivery
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import InputRequired, Published, Reported
from patchwright.resolver.events import Message
from patchwright.resolver.pull_request.follow_up_texts import link_newer_version
from patchwright.resolver.tool_actions.control_actions import Ask
from patchwright.runtime.actions import ReplaceText
from tests.end_to_end.conftest import CODE, DONE, RUN_TESTS, Scenario
from tests.end_to_end.review_setup import (
    LINES,
    MUL,
    NEG,
    QUICK,
    TEST_MUL,
    THREADS,
    WIP,
    WORK,
    finish_with_replies,
    initial_prompt,
    open_pull_request,
    own_thread_replies,
    request_job,
    status_comment,
)


@pytest.fixture
def untested_scenario(make_scenario: Callable[..., Scenario]) -> Scenario:
    """acme/calc without tests, so that verification runs nothing."""
    return make_scenario({"calc.py": CODE})


@pytest.mark.slow
async def test_a_review_of_five_threads_gets_one_commit_four_replies_and_resolved_threads(
    scenario: Scenario,
) -> None:
    pull = open_pull_request(scenario)
    scenario.fake_github.add_review(pull, ("calc.py", LINES["tmp"], "Typo."), by="maintainer")
    scenario.fake_github.resolve_thread(pull.review_threads[0], by="contributor")
    review = scenario.fake_github.add_review(pull, *THREADS, by="maintainer", body="@agent please fix these")
    before = pull.head.sha
    await scenario.script_model(*WORK)
    outcome = await scenario.resolve(request_job(scenario, pull, review, "please fix these"))
    # This includes four requests for a token and for the bot's account. A review of three threads needs 28
    # on a server that runs.
    assert len(scenario.fake_github.api_requests) <= 31
    assert isinstance(outcome, Published)
    assert (outcome.number, outcome.branch, outcome.verdict.kind) == (pull.number, "topic", "fixed")
    assert outcome.verdict.fail_to_pass == ("tests/test_calc.py::test_mul",)
    assert scenario.repo.bare.git("rev-list", f"{before}..topic").decode().split() == [pull.head.sha]
    assert scenario.repo.read("topic", "calc.py") == WIP.replace(
        "a + b\n\n\ndef neg", "a * b\n\n\ndef neg"
    ).replace("return a\n", "return -a\n").replace("\n\nTMP = 1\n", "")
    sha = pull.head.sha[:12]
    assert own_thread_replies(pull) == [
        [],
        [f"Done in {sha}. It multiplies now."],
        [f"Done in {sha}. It negates now."],
        [f"Done in {sha}. Taken out."],
        ["Not changed. `mul` is what operator.mul is called."],
    ]
    assert [thread.resolved_by is not None for thread in pull.review_threads] == [
        True,
        True,
        True,
        True,
        False,
    ]
    assert scenario.repo.branches == ("main", "topic")
    assert len(scenario.repo.pulls) == 1
    comment = status_comment(pull)
    assert comment.startswith(
        f"I pushed {sha} to `topic`.\n\n**Fixed:** 1 new test fails without this change and passes with it"
    )
    assert "| passed | 1 | 2 |" in comment
    assert "| `calc.py:9` | not changed |" in comment


@pytest.mark.slow
async def test_the_initial_prompt_contains_the_review_the_conversation_and_the_diff(
    untested_scenario: Scenario,
) -> None:
    """Complaint 18: replies in the review threads, and the complete thread is read."""
    scenario = untested_scenario
    pull = open_pull_request(scenario, body="Two small functions.")
    old = scenario.fake_github.add_review(pull, THREADS[0], by="stranger", body="I am not sure about this.")
    scenario.fake_github.add_reply(pull.review_threads[0], "Agreed: it must multiply.", by="maintainer")
    scenario.fake_github.add_comment_silently(pull, "Please keep it small.", by="maintainer")
    review = scenario.fake_github.add_review(pull, THREADS[1], by="maintainer", body="@agent fix neg")
    await scenario.script_model(
        RecordedTurn("Fix.", NEG),
        *[RecordedTurn("Done.", finish_with_replies((2, True, "It negates.")))] * 2,
    )
    assert old.body and isinstance(
        await scenario.resolve(request_job(scenario, pull, review, "fix neg")), Published
    )
    text = initial_prompt(scenario)
    for line in (
        "# The pull request to work on: #2",
        "> Two small functions.",
        "> I am not sure about this.",
        "> Please keep it small.",
        "> +def neg(a):",
        "## Thread 1: calc.py:10, for your information",
        "stranger (may not write to the repository):\n> This adds.",
        "maintainer (may write to the repository):\n> Agreed: it must multiply.",
        "## Thread 2: calc.py:14\n",
        "wrote in the review that started this run:\n> @agent fix neg",
        "Work through thread 2.",
    ):
        assert line in text, line
    (run,) = scenario.runs
    events = [event for event in scenario.trajectory(run) if isinstance(event, Message)]
    assert [event.text for event in events if event.source == "initial_prompt"] == [text]
    assert own_thread_replies(pull) == [[], [f"Done in {pull.head.sha[:12]}. It negates."]]


@pytest.mark.slow
@pytest.mark.redis
async def test_a_review_is_one_job_in_any_order_of_its_deliveries(
    untested_scenario: Scenario,
) -> None:
    scenario = untested_scenario
    pull = open_pull_request(scenario)
    threads = (THREADS[0], (THREADS[1][0], THREADS[1][1], "@agent this must negate"), *THREADS[2:])
    review = scenario.fake_github.add_review(pull, *threads, by="maintainer", body="A few things, @agent")
    await scenario.script_model(*QUICK, delay=0.1)
    async with scenario.serve() as served:
        scenario.fake_github.add_webhook(served.webhook, "story-webhook-secret")
        deliveries = await scenario.fake_github.deliver_review(pull, review)
        again = [scenario.fake_github.redeliver(one) for one in reversed(deliveries)]
        results: list[Delivery] = [*deliveries, *await asyncio.gather(*again)]
        assert {one.status for one in results} == {202}
        await scenario.wait_for_completion()
        await asyncio.sleep(1)
    assert len(scenario.runs) == 1
    assert [len(answers) for answers in own_thread_replies(pull)] == [1, 1, 1, 1]
    assert scenario.repo.bare.count_commits("main", "topic") == 2


@pytest.mark.slow
async def test_a_thread_without_a_reply_is_requested_again_and_then_reported(
    untested_scenario: Scenario,
) -> None:
    scenario = untested_scenario
    pull = open_pull_request(scenario)
    review = scenario.fake_github.add_review(pull, *THREADS[:2], by="maintainer", body="@agent")
    silent = finish_with_replies((1, True, "It multiplies now."))
    await scenario.script_model(
        RecordedTurn("Fix.", MUL), RecordedTurn("Done.", silent), RecordedTurn("So.", silent)
    )
    assert isinstance(await scenario.resolve(request_job(scenario, pull, review)), Published)
    assert "`thread_replies` contains none for them: 2." in str(scenario.endpoint.requests[-1]["messages"])
    assert own_thread_replies(pull)[1] == ["The run ended without a reply to this comment."]
    assert pull.review_threads[1].resolved_by is None


@pytest.mark.slow
async def test_a_change_that_breaks_a_test_is_not_pushed_and_resolves_no_thread(
    scenario: Scenario,
) -> None:
    pull = open_pull_request(scenario)
    review = scenario.fake_github.add_review(pull, THREADS[0], by="maintainer", body="@agent")
    before, broken = pull.head.sha, ReplaceText(path="calc.py", old="a * 2", new="a * 3")
    answer = finish_with_replies((1, True, "It multiplies now."))
    await scenario.script_model(
        RecordedTurn("Fix.", MUL, broken),
        RecordedTurn("Run.", RUN_TESTS),
        *[RecordedTurn("Done.", answer)] * 4,
    )
    outcome = await scenario.resolve(request_job(scenario, pull, review))
    assert isinstance(outcome, Reported)
    assert pull.head.sha == before
    assert outcome.branch is not None and "a * 3" in scenario.repo.read(outcome.branch, "calc.py")
    assert own_thread_replies(pull)[0][0].startswith(
        "The change is not on this pull request yet: the change would break tests that pass."
    )
    assert pull.review_threads[0].resolved_by is None
    assert status_comment(pull).startswith(
        "I pushed nothing to this pull request: the change would break tests that pass."
    )


@pytest.mark.slow
async def test_a_change_whose_own_test_fails_is_not_pushed(scenario: Scenario) -> None:
    scenario.environment["PATCHWRIGHT_MAX_REPAIRS"] = "0"
    pull = open_pull_request(scenario)
    review = scenario.fake_github.add_review(pull, THREADS[0], by="maintainer", body="@agent")
    before = pull.head.sha
    await scenario.script_model(
        RecordedTurn("Test.", TEST_MUL, NEG),
        RecordedTurn("Run.", RUN_TESTS),
        RecordedTurn("Done.", finish_with_replies((1, True, "Yes."))),
    )
    outcome = await scenario.resolve(request_job(scenario, pull, review))
    assert isinstance(outcome, Reported)
    assert pull.head.sha == before
    assert "the change's own tests fail: `tests/test_calc.py::test_mul`." in status_comment(pull)


@pytest.mark.slow
async def test_without_a_change_every_thread_gets_a_reason(untested_scenario: Scenario) -> None:
    scenario = untested_scenario
    pull = open_pull_request(scenario)
    review = scenario.fake_github.add_review(pull, THREADS[3], by="maintainer", body="@agent")
    await scenario.script_model(
        RecordedTurn("No.", finish_with_replies((1, False, "It is called so elsewhere.")))
    )
    outcome = await scenario.resolve(request_job(scenario, pull, review))
    assert isinstance(outcome, Reported) and outcome.verdict.kind == "empty"
    assert own_thread_replies(pull) == [["Not changed. It is called so elsewhere."]]
    assert status_comment(pull).startswith(
        "I pushed nothing to this pull request: the run ended without a change to the code."
    )


@pytest.mark.slow
async def test_a_lost_response_duplicates_nothing(untested_scenario: Scenario) -> None:
    scenario = untested_scenario
    pull = open_pull_request(scenario)
    review = scenario.fake_github.add_review(pull, *THREADS, by="maintainer", body="@agent")

    def lose(turn: int, body: object) -> None:
        if turn == 2:
            for lost in ("/graphql", "/graphql", "/replies", "/replies", "/comments"):
                scenario.fake_github.lose_next_response("POST", lost)

    await scenario.script_model(*QUICK, on_request=lose)
    assert isinstance(await scenario.resolve(request_job(scenario, pull, review)), Published)
    assert scenario.repo.bare.count_commits("main", "topic") == 2
    assert [len(answers) for answers in own_thread_replies(pull)] == [1, 1, 1, 1]
    assert [thread.resolved_by is not None for thread in pull.review_threads] == [True, True, True, False]
    assert status_comment(pull)


@pytest.mark.slow
async def test_work_published_before_a_crash_is_not_published_again(untested_scenario: Scenario) -> None:
    scenario = untested_scenario
    pull = open_pull_request(scenario)
    review = scenario.fake_github.add_review(pull, *THREADS[:2], by="maintainer", body="@agent")
    job = request_job(scenario, pull, review)
    await scenario.script_model(
        RecordedTurn("Fix.", MUL, NEG),
        *[RecordedTurn("Done.", finish_with_replies((1, True, "Yes."), (2, True, "Yes.")))] * 2,
    )
    assert isinstance(await scenario.resolve(job), Published)
    head = pull.head.sha
    scenario.repo.commit("topic", {"more.txt": "somebody's push behind it\n"})
    pull.review_threads[1].comments.pop()
    log = scenario.data / "runs" / job.id / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if '"event":{"kind":"job_completed"' not in line))
    assert isinstance(await scenario.resolve(job), Published)
    assert scenario.repo.bare.git("rev-list", "--count", f"{head}..topic") == b"1\n"
    assert own_thread_replies(pull) == [[f"Done in {head[:12]}. Yes."]] * 2
    assert scenario.repo.branches == ("main", "topic")


def finish_takes(scenario: Scenario) -> dict[str, object]:
    """Returns the JSON schema of the arguments of `finish`."""
    tools = {tool["function"]["name"]: tool["function"] for tool in scenario.endpoint.requests[0]["tools"]}
    taken: dict[str, object] = tools["finish"]["parameters"]["properties"]
    return taken


@pytest.mark.slow
async def test_a_follow_up_on_its_own_pull_request_knows_the_run_that_opened_it(
    untested_scenario: Scenario,
) -> None:
    scenario = untested_scenario
    account = DONE.model_copy(update={"cause": "The sign was wrong in add()."})
    await scenario.script_model(
        RecordedTurn("Fix.", ReplaceText(path="calc.py", old="a - b", new="a + b")),
        *[RecordedTurn("Done.", account)] * 2,
    )
    first = scenario.job()
    assert isinstance(await scenario.resolve(first), Published)
    assert set(finish_takes(scenario)) == {"cause", "change", "testing", "to_check"}
    pull = scenario.pull
    pull.body = first_body = pull.body.replace("Fixes #1", "A person wrote this.\n\nFixes #1")
    review = scenario.fake_github.add_review(
        pull, ("calc.py", 2, "Put the larger one first."), by="maintainer", body="@agent"
    )
    swap = ReplaceText(path="calc.py", old="return a + b", new="return b + a")
    await scenario.script_model(
        RecordedTurn("Swap.", swap), *[RecordedTurn("Done.", finish_with_replies((1, True, "Swapped.")))] * 2
    )
    job = request_job(scenario, pull, review)
    outcome = await scenario.resolve(job)
    assert isinstance(outcome, Published) and outcome.number == pull.number
    text = initial_prompt(scenario)
    assert set(finish_takes(scenario)) == {"cause", "change", "testing", "to_check", "thread_replies"}
    assert "A run of this program opened this pull request. The verdict of its tests: untested." in text
    assert text.count("The sign was wrong in add().") == text.count("> The sign was wrong in add().") == 1
    assert "\nOpened by an earlier run of this program, from `patchwright/issue-1` into `main`:\n" in text
    assert "> Fixes #1\n(The summary of that run was left out here; it follows below.)\n" in text
    assert text.count("# The issue that it fixes: #1\n\n> add(2, 3) gives -1\n") == 1
    assert (
        "Opened by reporter (may not write to the repository):\n> It should give 5.\n\n# Earlier runs" in text
    )
    assert "How the agent worked" in pull.body and "How the agent worked" not in text
    assert scenario.repo.read(pull.head_ref, "calc.py").startswith("def add(a, b):\n    return b + a\n")
    assert len(scenario.repo.pulls) == 1
    (comment,) = [one for one in pull.comments if one.body.startswith("<!-- patchwright:")]
    url = f"{scenario.fake_github.server_url}/acme/calc/pull/{pull.number}#issuecomment-{comment.id}"
    assert pull.body == link_newer_version(first_body, url)
    again = scenario.fake_github.add_review(pull, ("calc.py", 2, "Or not."), by="maintainer", body="@agent")
    await scenario.script_model(RecordedTurn("No.", finish_with_replies((1, False, "It does not matter."))))
    await scenario.resolve(request_job(scenario, pull, again))
    assert "A run of this program worked on this pull request." in initial_prompt(scenario)


@pytest.mark.slow
async def test_a_foreign_pull_request_has_no_previous_run(untested_scenario: Scenario) -> None:
    scenario = untested_scenario
    await scenario.script_model(
        RecordedTurn("Fix.", ReplaceText(path="calc.py", old="a - b", new="a + b")),
        *[RecordedTurn("Done.", DONE)] * 2,
    )
    assert isinstance(await scenario.resolve(), Published)
    pull = open_pull_request(scenario, body="Fixes #1")
    review = scenario.fake_github.add_review(pull, THREADS[3], by="maintainer", body="@agent")
    await scenario.script_model(RecordedTurn("No.", finish_with_replies((1, False, "No."))))
    await scenario.resolve(request_job(scenario, pull, review))
    assert "Earlier runs on this pull request" not in initial_prompt(scenario)


@pytest.mark.slow
async def test_the_command_line_resolves_the_open_threads_of_a_pull_request(
    untested_scenario: Scenario,
) -> None:
    scenario = untested_scenario
    pull = open_pull_request(scenario)
    scenario.fake_github.add_review(pull, THREADS[0], by="maintainer")
    await scenario.script_model(
        RecordedTurn("Fix.", MUL), *[RecordedTurn("Done.", finish_with_replies((1, True, "Yes.")))] * 2
    )
    code, out, error = await scenario.command(
        "resolve", f"{scenario.fake_github.server_url}/acme/calc/pull/{pull.number}"
    )
    assert (code, f"/acme/calc/pull/{pull.number}\n" in out) == (0, True), error
    assert own_thread_replies(pull) == [[f"Done in {pull.head.sha[:12]}. Yes."]]


@pytest.mark.slow
async def test_a_question_on_a_pull_request_waits_for_its_answer_and_continues(
    untested_scenario: Scenario,
) -> None:
    scenario = untested_scenario
    pull = open_pull_request(scenario)
    review = scenario.fake_github.add_review(pull, THREADS[3], by="maintainer", body="@agent")
    rename = ReplaceText(path="calc.py", old="def mul", new="def times")
    await scenario.script_model(
        RecordedTurn("Ask.", Ask(question="Times or product?")),
        RecordedTurn("Rename.", rename),
        *[RecordedTurn("Done.", finish_with_replies((1, True, "It is `times`.")))] * 2,
    )
    assert isinstance(await scenario.resolve(request_job(scenario, pull, review)), InputRequired)
    assert "Times or product?" in status_comment(pull)
    outcome = await scenario.resolve(request_job(scenario, pull, command="times"))
    assert isinstance(outcome, Published)
    assert "def times" in scenario.repo.read("topic", "calc.py")
    assert own_thread_replies(pull) == [[f"Done in {pull.head.sha[:12]}. It is `times`."]]
