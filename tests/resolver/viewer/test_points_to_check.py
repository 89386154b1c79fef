"""What people should check is shown beside the verdict of a run."""

import html
import re

from patchwright.resolver.domain import Patch
from patchwright.resolver.events import Checkpoint, Event, VerificationCompleted
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.tool_actions.control_actions import Finish, Plan
from patchwright.resolver.viewer.run_html import render_run_html
from patchwright.runtime.observations import Acknowledgment
from patchwright.runtime.tool_action import PlanItem
from tests.resolver.sample_runs import RUN, run_of, started, step, verdict


def page_text(*events: Event) -> str:
    page = render_run_html(RUN, run_of(started(), *events), lambda run: None, Secrets())
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", page)).split())


def test_what_people_should_check_is_beside_the_verdict() -> None:
    finish = Finish(cause="It subtracts.", change="It adds.", testing="None.", to_check=("Is zero allowed?",))
    events = (
        Checkpoint(patch=Patch(base_sha="ab" * 20, diff=b"+x\n")),
        *step("plan", Plan(items=(PlanItem(text="Cover floats"),)), Acknowledgment(text="Noted.")),
        *step("finish", finish, Acknowledgment(text="Noted.")),
    )
    unproven = verdict().model_copy(update={"kind": "unproven", "fail_to_pass": ()})
    text = page_text(*events, VerificationCompleted(verdict=unproven))
    first = text[: text.index("Summary by the agent")]
    assert "Please check Is zero allowed? Nothing shows the failure" in first
    assert 'Not marked as done by the agent: "Cover floats".' in first
    fixed = page_text(*events, VerificationCompleted(verdict=verdict()))
    assert (
        'Not marked as done by the agent: "Cover floats".' in fixed
        and "Nothing shows the failure" not in fixed
    )
    assert "Please check" not in page_text(*events)
