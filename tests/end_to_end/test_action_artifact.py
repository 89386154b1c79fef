"""The second workflow job rejects every forged artifact, which would have succeeded without its checks."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from patchwright.bot.github_action.workflow_jobs import PublishJob, ResolveJobFailed, build_publish_deps
from patchwright.resolver.domain import (
    InputRequired,
    JobId,
    Published,
    PullRequest,
    Rejected,
    Reported,
    Verdict,
)
from patchwright.resolver.errors import InvalidArtifact
from patchwright.resolver.events import (
    AgentStopped,
    Checkpoint,
    Event,
    JobCompleted,
    Message,
    ModelReply,
    ReplyUsage,
    RunStarted,
    ToolCall,
    VerificationCompleted,
)
from patchwright.resolver.publishing import artifact
from patchwright.resolver.run_events import RunConfigured, RunResumed
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.tool_actions.control_actions import Finish, ThreadReply
from tests.contracts.forges import file
from tests.end_to_end.publish_scenario import FIX, PublishScenario, verdict
from tests.end_to_end.uploaded_artifact import UploadedArtifact


@pytest.fixture
def upload(publish_scenario: PublishScenario) -> UploadedArtifact:
    return UploadedArtifact(publish_scenario)


@pytest.fixture
def on_pull(publish_scenario: PublishScenario) -> UploadedArtifact:
    """On a contributor's pull request with a review thread; `release` is an unrelated branch."""
    publish_scenario.repo.commit("release", {"VERSION": "1\n"})
    publish_scenario.repo.commit("topic", {"calc.py": "def add(a, b):\n    return a - b  # TODO\n"})
    pull = publish_scenario.fake_github.create_pull(
        publish_scenario.repo, "topic", by="maintainer", title="Add"
    )
    publish_scenario.fake_github.add_review(pull, ("calc.py", 2, "This subtracts."), by="maintainer")
    return UploadedArtifact(publish_scenario, pull)


def forge_log(events: list[Event], **changes: Any) -> list[Event]:
    """Returns the log with changed facts in its first event."""
    return [events[0].model_copy(update=changes), *events[1:]]


async def test_a_valid_artifact_is_published(upload: UploadedArtifact) -> None:
    outcome = await upload.publish(await upload.events())
    assert isinstance(outcome, Published)
    assert not outcome.draft
    assert upload.scenario.repo.branches == ("main", "patchwright/issue-1")


@pytest.mark.slow
async def test_a_valid_artifact_for_a_pull_request_is_published(on_pull: UploadedArtifact) -> None:
    outcome = await on_pull.publish(await on_pull.events(FIX))
    assert isinstance(outcome, Published)
    assert on_pull.scenario.repo.read("topic", "calc.py") == "def add(a, b):\n    return a + b\n"


@pytest.mark.slow
async def test_a_log_with_another_pull_request_branch_is_rejected(
    on_pull: UploadedArtifact,
) -> None:
    repo = on_pull.scenario.repo
    release = repo.bare.branch_sha("release")
    assert release is not None
    events = await on_pull.events(file("VERSION", b"2\n"), base=release)
    assert isinstance(events[0], RunStarted)
    thread = events[0].thread.model_copy(update={"head_branch": "release", "head_sha": release})
    with pytest.raises(InvalidArtifact, match="branches differ"):
        await on_pull.publish(forge_log(events, thread=thread))
    assert repo.bare.branch_sha("release") == release
    await on_pull.publish(forge_log(events, thread=thread), is_validated=False)
    assert repo.read("release", "VERSION") == "2\n"


@pytest.mark.slow
async def test_a_base_that_is_not_on_the_base_branch_is_rejected(
    upload: UploadedArtifact,
) -> None:
    repo = upload.scenario.repo
    repo.commit("planted", {".github/workflows/evil.yml": "on: push\n"})
    planted = repo.bare.branch_sha("planted")
    assert planted is not None
    events = await upload.events(base=planted)
    with pytest.raises(InvalidArtifact, match="does not contain the commit"):
        await upload.publish(events)
    assert "patchwright/issue-1" not in repo.branches
    await upload.publish(events, is_validated=False)
    assert repo.read("patchwright/issue-1", ".github/workflows/evil.yml") == "on: push\n"


@pytest.mark.slow
async def test_a_head_that_is_not_in_the_pull_request_is_rejected(on_pull: UploadedArtifact) -> None:
    planted = on_pull.scenario.repo.commit("planted", {"evil.py": "print()\n"})
    events = await on_pull.events(base=planted)
    assert isinstance(events[0], RunStarted)
    thread = events[0].thread.model_copy(update={"head_sha": planted})
    with pytest.raises(InvalidArtifact, match="no longer contains the commit"):
        await on_pull.publish(forge_log(events, thread=thread))
    await on_pull.publish(forge_log(events, thread=thread), is_validated=False)
    (ours,) = (name for name in on_pull.scenario.repo.branches if name.startswith("patchwright/"))
    assert on_pull.scenario.repo.read(ours, "evil.py") == "print()\n"


@pytest.mark.slow
async def test_a_review_thread_of_another_pull_request_is_not_changed(on_pull: UploadedArtifact) -> None:
    publish_scenario = on_pull.scenario
    publish_scenario.repo.commit("other", {"calc.py": "x = 1\n"})
    other = publish_scenario.fake_github.create_pull(
        publish_scenario.repo, "other", by="maintainer", title="Other"
    )
    publish_scenario.fake_github.add_review(other, ("calc.py", 1, "Why?"), by="maintainer")
    events = await on_pull.events(FIX)
    async with publish_scenario.forge() as forge:
        there = await forge.get_thread(on_pull.job.model_copy(update={"number": other.number}))
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[0].thread, PullRequest)
    assert isinstance(there, PullRequest)
    (mine,) = events[0].thread.threads
    planted = mine.model_copy(update={"id": there.threads[0].id})
    answered = Finish(
        cause="c",
        change="c",
        testing="c",
        thread_replies=(ThreadReply(thread=1, is_done=True, text="Done."),),
    )
    events[1] = ModelReply(
        thought="", calls=(ToolCall(id="1", action=answered),), usage=ReplyUsage(model="m")
    )
    events = forge_log(events, thread=events[0].thread.model_copy(update={"threads": (planted,)}))
    with pytest.raises(InvalidArtifact, match="review thread"):
        await on_pull.publish(events)
    assert other.review_threads[0].resolved_by is None
    await on_pull.publish(events, is_validated=False)
    assert other.review_threads[0].resolved_by is not None


ANOTHER = (
    lambda job: job.model_copy(update={"id": JobId("../../../planted")}),
    lambda job: job.model_copy(update={"number": 2}),
    lambda job: job.model_copy(update={"requester": None}),
    lambda job: job.model_copy(update={"command": "model=dear"}),
)


@pytest.mark.parametrize("change", ANOTHER)
async def test_a_log_of_another_job_is_rejected(upload: UploadedArtifact, change: Callable[..., Any]) -> None:
    with pytest.raises(InvalidArtifact, match="did not trigger"):
        await upload.publish(forge_log(await upload.events(), job=change(upload.job)))
    assert upload.scenario.comments == []


@pytest.mark.parametrize(
    "last", [JobCompleted(outcome=Rejected(explanation="Done.")), RunResumed(run=JobId("another"))]
)
async def test_a_log_cannot_claim_to_be_published_already(upload: UploadedArtifact, last: Event) -> None:
    with pytest.raises(InvalidArtifact, match="only the publishing job writes"):
        await upload.publish([*await upload.events(), last])


async def test_an_answer_continues_only_a_run_that_asked_in_this_thread(upload: UploadedArtifact) -> None:
    upload.scenario.command = "Integers only."
    earlier = upload.job.model_copy(update={"id": JobId("earlier"), "number": 2, "requester": None})
    started, *work = forge_log(await upload.events(), job=earlier)
    earlier_end = JobCompleted(outcome=InputRequired(url="https://evil.test", question="Floats?"))
    answer = Message(text="Integers only.", source="comment", trigger_id=upload.job.id)
    with pytest.raises(InvalidArtifact, match="only the publishing job writes"):
        await upload.publish([started, earlier_end, answer, *work])
    async with upload.scenario.forge() as forge:
        question = "<!--question-->\n\nFloats?\n\n<!--/question-->"
        await forge.upsert_comment(upload.job.repo, upload.job.number, earlier.id, question)
    with pytest.raises(InvalidArtifact, match="did not trigger"):
        other = earlier.model_copy(update={"id": JobId("other")})
        await upload.publish(forge_log([started, answer, *work], job=other))
    with pytest.raises(InvalidArtifact, match="only the publishing job writes"):
        await upload.publish([started, earlier_end, answer, *work, earlier_end])
    assert isinstance(await upload.publish([started, earlier_end, answer, *work]), Published)
    assert "Floats?" in upload.scenario.comments[0] and upload.scenario.pulls


@pytest.mark.slow
async def test_forbidden_files_are_removed_from_a_patch_marked_as_proven(
    upload: UploadedArtifact,
) -> None:
    workflow = file(".github/workflows/evil.yml", b"on: push\n")
    outcome = await upload.publish(await upload.events(FIX, workflow))
    assert isinstance(outcome, Published)
    assert (
        "evil.yml"
        not in upload.scenario.repo.bare.git("ls-tree", "-r", "--name-only", "patchwright/issue-1").decode()
    )
    assert "Only maintainers may change" in (upload.scenario.pulls[0].body or "")


async def test_a_revoked_permission_publishes_nothing(upload: UploadedArtifact) -> None:
    events = await upload.events()
    upload.scenario.fake_github.set_role(upload.scenario.repo, "maintainer", "read")
    assert isinstance(await upload.publish(events), Rejected)
    assert upload.scenario.repo.branches == ("main",)


LOUD = "@everyone <img src=//evil.test> ![x](http://evil.test) fixes #1\n::set-output name=x::y\n```"
LIVE = re.compile(r"@everyone|<img|!\[x\]|fixes #1", re.IGNORECASE)
LIVE_IN_PLAIN_TEXT = re.compile(r"@everyone|fixes #1", re.IGNORECASE)  # GitHub renders no Markdown there


def active_lines(text: str) -> list[str]:
    """Returns the lines with active Markdown; text in code is inert."""
    outside = re.sub(r"(`{3,}).*?\\1|`[^`\n]+`", "", text, flags=re.DOTALL)
    return [line for line in outside.splitlines() if LIVE.search(line) and line != "Fixes #1"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fixed", "unproven", "regressed"])
async def test_text_of_a_forged_log_is_shown_inert(upload: UploadedArtifact, kind: Any) -> None:
    events = await upload.events(kind=kind)
    forged_verdict = verdict(kind)
    shouting = {LOUD: "failed", f"{LOUD}2": "passed"}
    run = forged_verdict.before and forged_verdict.before.model_copy(
        update={"command": LOUD, "command_reason": LOUD, "output": LOUD, "results": shouting}
    )
    events[4] = VerificationCompleted(
        verdict=Verdict(
            kind=kind,
            reason=LOUD,
            fail_to_pass=(LOUD,),
            pass_to_fail=(LOUD,),
            flaky=(LOUD,),
            before=run,
            after=run,
        )
    )
    events[3] = AgentStopped(reason="limit", detail=LOUD)
    finish = Finish(cause=LOUD, change=LOUD, testing=LOUD)
    events[1] = ModelReply(
        thought=LOUD, calls=(ToolCall(id="1", action=finish),), usage=ReplyUsage(model=LOUD, prompt_tokens=1)
    )
    places = {"mention": LOUD, "workflow_url": "https://evil.test/run", "public_url": LOUD}
    under = RunConfigured(
        version=LOUD,
        models={"act": LOUD},
        steps=1,
        seconds=1,
        usd=Decimal(1),
        settings=places,
        repository={LOUD: LOUD},
    )
    events = forge_log(events, model=LOUD, source=LOUD)
    await upload.publish([events[0], under, *events[1:]])
    texts = [*upload.scenario.comments, *(pull.body or "" for pull in upload.scenario.pulls)]
    assert texts
    assert [line for text in texts for line in active_lines(text)] == []
    plain = [pull.title for pull in upload.scenario.pulls]
    plain.append(upload.scenario.repo.bare.git("log", "-1", "--format=%B", "patchwright/issue-1").decode())
    left = "\n".join(plain).replace("Fixes #1\n", "")
    assert "fixes # 1" in left and not LIVE_IN_PLAIN_TEXT.search(left)
    assert "evil.test/run" not in "".join([*texts, *plain])
    assert active_lines(f"so {LOUD} and `so`")  # active text would be found


async def test_a_patch_against_another_base_commit_is_rejected(
    upload: UploadedArtifact,
) -> None:
    events = await upload.events()
    other = upload.scenario.repo.commit("main", {"new.py": "x = 1\n"})
    assert isinstance(events[2], Checkpoint)
    events[2] = Checkpoint(patch=events[2].patch.model_copy(update={"base_sha": other}))
    with pytest.raises(Exception, match="was made against"):
        await upload.publish(events)


async def test_the_reason_of_a_failure_is_posted_without_mentions(upload: UploadedArtifact) -> None:
    place = upload.scenario.data / "patchwright-artifact"
    artifact.write_artifact(place, upload.job.id, None, LOUD, Secrets())
    settings = Settings(
        data=upload.scenario.data / "publish", github_server_url=upload.scenario.fake_github.server_url
    )
    logs = FileLogStore(settings.data / "runs")
    async with upload.scenario.forge() as forge:
        part = PublishJob(forge, build_publish_deps(settings, Secrets(), logs), logs, place, print)
        with pytest.raises(ResolveJobFailed) as broke:
            await part.resolve(upload.job)
        await part.report_failure(upload.job, broke.value)
    (comment,) = upload.scenario.comments
    assert active_lines(comment) == []
    assert "everyone" in comment


@pytest.mark.slow
async def test_work_on_a_moved_branch_is_saved_on_another_branch_with_the_reason(
    on_pull: UploadedArtifact,
) -> None:
    on_pull.scenario.repo.commit("main", {"tests/test_calc.py": "def test_nothing():\n    pass\n"})
    events = await on_pull.events(FIX)
    theirs = on_pull.scenario.repo.commit("topic", {"README": "Later.\n"})
    outcome = await on_pull.publish(events)
    assert isinstance(outcome, Reported)
    assert outcome.branch is not None and outcome.branch.startswith("patchwright/pull-")
    assert "the publishing job does not run tests" in outcome.reason
    assert on_pull.scenario.repo.bare.branch_sha("topic") == theirs
