"""Only the browsing agent can read linked hosts, and only people with write access can link them."""

from pathlib import Path
from typing import Any

import pytest

from patchwright.resolver.browsing.browser_options import DEFAULT_OPTIONS, options_from_settings
from patchwright.resolver.browsing.linked_hosts import find_linked_hosts
from patchwright.resolver.delegation.browse_tool import BrowseTool
from patchwright.resolver.domain import Comment, Issue, RunId
from patchwright.resolver.events import RunStarted
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.run_settings import RunSettings
from patchwright.resolver.tool_actions.subagent_actions import Browse
from patchwright.runtime.actions import BrowseLinks, SandboxAction
from patchwright.runtime.observations import Observation
from tests.resolver.fake_browser import BLANK, RUN, FakeBrowserSandbox, code_reply, page
from tests.resolver.sample_runs import AUTHOR, model_reply, run_of, started
from tests.resolver.scripted_model import ScriptedModel

ANSWERED = page("RootWebArea 'Docs'", user_message="42")
LINK = "See https://docs.linked.test/a?b=c."


def start(body: str, *comments: Comment, trusted: bool = True, request: str = "") -> RunStarted:
    event = started()
    assert isinstance(event.thread, Issue)
    thread = event.thread.model_copy(update={"body": body, "trusted": trusted, "comments": comments})
    job = event.job.model_copy(update={"command": request})
    return event.model_copy(update={"thread": thread, "job": job})


def hosts_of(*arguments: Any, **more: Any) -> tuple[str, ...]:
    return find_linked_hosts(run_of(start(*arguments, **more)))


def test_links_of_people_with_write_access_name_the_hosts() -> None:
    writer = Comment(
        author=AUTHOR, body="Also http://WWW.other.test:80/x and https://docs.linked.test/", trusted=True
    )
    assert hosts_of(LINK, writer) == ("docs.linked.test",)
    bare = writer.model_copy(update={"body": "Also [this](https://www.other.test/x)"})
    assert hosts_of(LINK, bare, request="https://third.test") == (
        *("docs.linked.test", "www.other.test", "third.test"),
    )


def test_links_of_strangers_name_no_host() -> None:
    stranger = Comment(author=AUTHOR, body="https://evil.test/", trusted=False)
    assert hosts_of(LINK, stranger, trusted=False) == ()


@pytest.mark.parametrize(
    "body",
    [
        "<!-- https://hidden.test/ -->",
        "https://169.254.169.254/latest",
        "http://localhost:8000/ and http://[::1]/ and https://2130706433/",
        "https://user@linked.test/ https://linked.test:8443/ https://[bad/",
        "ftp://linked.test/ linked.test",
    ],
)
def test_hidden_internal_and_unusual_links_name_no_host(body: str) -> None:
    assert hosts_of(body) == ()


class RecordingSandbox(FakeBrowserSandbox):
    """Also takes the actions that may read links."""

    def __init__(self, *pages: Any) -> None:
        super().__init__(*pages)
        self.actions: list[SandboxAction] = []

    async def act(self, action: SandboxAction) -> Observation:
        self.actions.append(action)
        return await super().act(action.browser if isinstance(action, BrowseLinks) else action)


@pytest.mark.parametrize("reads_links", [True, False])
async def test_the_browsing_agent_reads_links_where_the_setting_is_on(
    tmp_path: Path, reads_links: bool
) -> None:
    box, logs = RecordingSandbox(BLANK, ANSWERED), FileLogStore(tmp_path)
    options = DEFAULT_OPTIONS.model_copy(update={"reads_links": reads_links})
    async with logs.open(RUN) as log:
        await log.append(start(LINK))
        await log.append(model_reply("call", Browse(task="Read it.")))
        model = ScriptedModel([code_reply('send_msg_to_user("42")')])
        tool = BrowseTool(RUN, log, logs, model, box, Limits(), options=options)
        await tool.browse(Browse(task="Read it."))
    assert [action.kind for action in box.actions] == ["browse_links" if reads_links else "use_browser"] * 2
    if reads_links:
        assert all(
            isinstance(each, BrowseLinks) and each.hosts == ("docs.linked.test",) for each in box.actions
        )
    assert logs.read(RunId(f"{RUN}-browse-1")).subagent_started is not None


def test_the_setting_is_on_by_default_and_can_be_turned_off() -> None:
    settings = RunSettings()
    assert options_from_settings(settings).reads_links
    assert not options_from_settings(settings.model_copy(update={"browse_links": False})).reads_links
