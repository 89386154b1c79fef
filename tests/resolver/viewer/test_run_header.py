"""The header of a run's page says what the pull request says."""

from patchwright.resolver.domain import Reported, RunId, Verdict
from patchwright.resolver.events import JobCompleted, VerificationCompleted
from patchwright.resolver.viewer.run_html import render_fragments, render_progress
from tests.resolver.pull_requests import pull
from tests.resolver.sample_runs import RUN, run_of, started


def read_nothing(run: RunId) -> None:
    return None


def test_the_verdict_on_documentation_is_named_as_on_the_pull_request() -> None:
    completed = VerificationCompleted(verdict=Verdict(kind="unproven", documentation_only=True))
    page = render_fragments(RUN, run_of(started(), completed), read_nothing, is_live=False)
    assert page.title.startswith("documentation only: ")
    assert "</span> documentation only</p>" in page.header


def test_a_run_without_a_verdict_is_no_warning_before_its_end() -> None:
    header = render_progress(RUN, run_of(started()), 1000, is_over=False).header
    assert '<div class="verdict none">' in header and "</span> no verdict yet</p>" in header


def test_the_base_of_a_run_on_a_pull_request_is_its_branch() -> None:
    at_work = started().model_copy(update={"thread": pull(head_branch="topic", base_branch="main")})
    header = render_progress(RUN, run_of(at_work), 1000, is_over=False).header
    assert f"<dt>Base</dt><dd>{at_work.base_sha[:12]} on topic</dd>" in header


def test_an_explanation_is_no_change_without_a_verdict() -> None:
    job = started().job.model_copy(update={"command": "explain why?"})
    answered = Reported(url="https://forge.test/c1", branch=None, reason="The question is answered.")
    run = run_of(started().model_copy(update={"job": job}), JobCompleted(outcome=answered))
    page = render_fragments(RUN, run, read_nothing, is_live=False)
    assert "</span> explanation</p>" in page.header and page.title == "add() subtracts"
    assert "<p>The question is answered. " in page.header and "no change" not in page.main
