"""Lets the browsing agent read the hosts that people with write access linked in the thread.

Nobody else in the sandbox can read these hosts, and the browsing agent can only read them: the egress proxy permits GET
and HEAD. What is linked by people without write access changes nothing.
"""

import re
from urllib.parse import urlsplit

from patchwright.resolver.browsing.guessed_urls import URL_CHARACTER
from patchwright.resolver.events import Trajectory
from patchwright.resolver.text.untrusted import strip_hidden
from patchwright.runtime.actions import BrowseLinks, SandboxAction, UseBrowser
from patchwright.runtime.egress_policy import is_public_name
from patchwright.runtime.observations import Observation
from patchwright.runtime.sandbox import Sandbox, WrapperSandbox

MAX_HOSTS = 20  # hosts per thread; further hosts are ignored

_LINK = re.compile(rf"https?://{URL_CHARACTER}{{1,2000}}", re.IGNORECASE)


def find_linked_hosts(trajectory: Trajectory) -> tuple[str, ...]:
    """Returns the public hosts in the visible texts of people with write access: the thread's own text, its comments,
    and the request.
    """
    started = trajectory.run_started
    if started is None:
        return ()
    thread = started.thread
    texts = [thread.body] if thread.trusted else []
    texts += [comment.body for comment in thread.comments if comment.trusted]
    links = (
        link.rstrip(".,;:!?")
        for text in (*texts, started.job.request.text)
        for link in _LINK.findall(strip_hidden(text)[0])
    )
    hosts = filter(is_public_name, map(_read_host, links))
    return tuple(dict.fromkeys(hosts))[:MAX_HOSTS]


def _read_host(link: str) -> str:
    try:
        parts = urlsplit(link)
        return (parts.hostname or "").rstrip(".") if parts.netloc.lower() == parts.hostname else ""
    except ValueError:
        return ""


class LinkBrowsingSandbox(WrapperSandbox):
    """A sandbox whose browser may read these hosts."""

    def __init__(self, sandbox: Sandbox, hosts: tuple[str, ...]) -> None:
        super().__init__(sandbox)
        self._hosts = hosts

    async def act(self, action: SandboxAction) -> Observation:
        if isinstance(action, UseBrowser) and self._hosts:
            return await self._sandbox.act(BrowseLinks(browser=action, hosts=self._hosts))
        return await self._sandbox.act(action)
