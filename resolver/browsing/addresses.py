"""Which addresses an agent was given, and which it made up. Pure.

Source: arXiv:2506.03011, section 5.1 (search first, then browse: addresses that models make up lead nowhere).
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from resolver import render
from resolver.events import Decided, Observed, Told, Trajectory
from runtime.actions import UseBrowser
from runtime.browser.code import parse
from runtime.observations import Failed, Page

MOST = 300  # addresses that a task brings along
LONGEST = 500  # characters of one

_WRITTEN = re.compile(r"https?://[^\s<>\"'`(){}|\\^\]\[]+", re.IGNORECASE)
# In a task also as people say them: `example.com/docs`, `localhost:8000`.
_SPOKEN = re.compile(
    r"(?<![\w@./-])(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)+)(?::\d+)?(?:/[^\s<>\"'`(){}|\\^\]\[]*)?",
    re.IGNORECASE,
)
_HERE = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1"})

Place = tuple[str, str]
"""Host with port, and path: what makes two addresses the same page for us."""


def brought_along(trajectory: Trajectory) -> tuple[str, ...]:
    """The addresses that a run has read: in its brief, in what it was told, in results. The latest ones."""
    found: dict[str, None] = {}
    for entry in reversed(trajectory.entries):
        match entry.event:
            case Told(text=text):
                pass
            case Observed(observation=observation):
                text = render.result(observation)
            case _:
                continue
        found |= dict.fromkeys(_clean(each) for each in _WRITTEN.findall(text) if len(each) <= LONGEST)
        if len(found) >= MOST:
            break
    return tuple(found)[:MOST]


def only_address(task: str) -> str | None:
    """The one address that a task writes out; None where it writes none or several."""
    found = {url for each in _WRITTEN.findall(task) if _place(url := _clean(each)) and len(url) <= LONGEST}
    return found.pop() if len(found) == 1 else None


def guesses(trajectory: Trajectory) -> Iterator[tuple[str, str]]:
    """What a browsing agent went to although nobody had named it: id of the call, and the address; each once."""
    assigned = trajectory.assigned
    named: set[Place] = set()
    # Reading a page takes a while, and what it names must be known only where an address is gone to.
    unread: list[Page] = []
    if assigned is not None:
        named |= _places((*assigned.known, *_in_text(assigned.task)))
    for event in trajectory:
        match event:
            case Decided(calls=calls):
                for call in calls:
                    for url in _goes_to(call.action.code) if isinstance(call.action, UseBrowser) else ():
                        while unread:
                            named |= _named_on(unread.pop())
                        if (place := _place(url)) and place not in named:
                            named.add(place)
                            yield call.id, url
            case Observed(observation=Page() as page):
                unread.append(page)
            case _:
                continue


def guessed(trajectory: Trajectory) -> tuple[str, ...]:
    """The addresses alone, as a report names them."""
    return tuple(url[:LONGEST] for _, url in guesses(trajectory))


def _named_on(page: Page) -> set[Place]:
    shown = (page.url, *(tab.url for tab in page.tabs))
    return _places((*shown, *_in_text("\n".join((page.tree, *page.notes)))))


def _goes_to(code: str) -> Iterator[str]:
    calls = parse(code)
    for call in () if isinstance(calls, Failed) else calls:
        if call.name == "goto":
            yield str(call.arguments["url"])


def _in_text(text: str) -> Iterator[str]:
    for form in (_WRITTEN, _SPOKEN):
        yield from map(_clean, form.findall(text))


def _clean(url: str) -> str:
    """Without what ends a sentence."""
    return url.rstrip(".,;:!?*_")


def _places(urls: Iterable[str]) -> set[Place]:
    """The pages at these addresses, and the front pages of their hosts."""
    places = {place for url in urls if (place := _place(url))}
    return places | {(host, "") for host, _ in places}


def _place(url: str) -> Place | None:
    """None for what is no address of a page on a host."""
    url = url.strip()
    try:
        parts = urlsplit(url if "//" in url[:9] else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme.lower() not in ("http", "https") or not host or url.lower().startswith("about:"):
        return None
    host = "localhost" if host in _HERE else host.removeprefix("www.")
    return f"{host}:{port}" if port and port not in (80, 443) else host, parts.path.rstrip("/")
