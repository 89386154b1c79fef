"""Distinguishes the URLs that an agent was given from those that it made up. All functions are pure.

URLs that models make up rarely exist, so an agent should search before it browses. Source: arXiv:2506.03011,
section 5.1.
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from patchwright.resolver.agent import messages
from patchwright.resolver.events import Message, ModelReply, ToolResult, Trajectory
from patchwright.runtime.actions import UseBrowser
from patchwright.runtime.browser.call_parser import parse_calls
from patchwright.runtime.observations import ActionFailure, PageSnapshot

MAX_URLS = 300  # maximum number of URLs that are collected from a run
MAX_URL_LENGTH = 500  # characters of one URL

URL_CHARACTER = r"[^\s<>\"'`(){}|\\^\]\[]"
_FULL_URL = re.compile(f"https?://{URL_CHARACTER}+", re.IGNORECASE)
# Tasks also contain URLs as people write them: `example.com/docs`, `localhost:8000`.
_BARE_URL = re.compile(
    r"(?<![\w@./-])(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)+)(?::\d+)?" f"(?:/{URL_CHARACTER}*)?",
    re.IGNORECASE,
)
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1"})
_NOT_FOUND = "the server responded with status 404"
"""How the note of runtime/browser/call_executor.py begins."""

UrlKey = tuple[str, str]
"""The host (with its port) and the path of a URL. URLs with the same key count as the same page."""


def collect_known_urls(trajectory: Trajectory) -> tuple[str, ...]:
    """Returns the URLs in a run's prompt, messages and tool results. If there are more than MAX_URLS, returns
    only the latest ones.
    """
    urls: dict[str, None] = {}
    for entry in reversed(trajectory.entries):
        match entry.event:
            case Message(text=text):
                pass
            case ToolResult(observation=observation):
                text = messages.render_observation(observation)
            case _:
                continue
        urls |= dict.fromkeys(
            _strip_punctuation(url) for url in _FULL_URL.findall(text) if len(url) <= MAX_URL_LENGTH
        )
        if len(urls) >= MAX_URLS:
            break
    return tuple(urls)[:MAX_URLS]


def find_only_url(task: str) -> str | None:
    """Returns the URL in a task, or None if the task contains no URL or several URLs."""
    urls = {
        url
        for match in _FULL_URL.findall(task)
        if _get_url_key(url := _strip_punctuation(match)) and len(url) <= MAX_URL_LENGTH
    }
    return urls.pop() if len(urls) == 1 else None


def iter_guessed_urls(trajectory: Trajectory) -> Iterator[tuple[str, str]]:
    """Yields the id of each browser call that opens a URL that the agent had not seen before, and this URL.
    Yields each guessed URL only once.
    """
    started = trajectory.subagent_started
    known_keys: set[UrlKey] = set()
    # Scanning a page takes time, so pages are scanned only when the agent navigates.
    unscanned: list[PageSnapshot] = []
    if started is not None:
        known_keys |= _get_url_keys((*started.known_urls, *_find_urls(started.task)))
    for event in trajectory:
        match event:
            case ModelReply(calls=calls):
                for call in calls:
                    for url in (
                        _find_navigations(call.action.code) if isinstance(call.action, UseBrowser) else ()
                    ):
                        while unscanned:
                            known_keys |= _get_page_keys(unscanned.pop())
                        if (key := _get_url_key(url)) and key not in known_keys:
                            known_keys.add(key)
                            yield call.id, url
            case ToolResult(observation=PageSnapshot() as page):
                unscanned.append(page)
            case _:
                continue


def list_guessed_urls(trajectory: Trajectory) -> tuple[str, ...]:
    """Returns the guessed URLs for the report. Long URLs are clipped."""
    return tuple(url[:MAX_URL_LENGTH] for _, url in iter_guessed_urls(trajectory))


def find_missing_url(code: str, trajectory: Trajectory) -> str | None:
    """Returns the first guessed URL in a call's code that does not exist: the server responded to it with status
    404 earlier in this task. Returns None if the code opens no such URL.
    """
    opens_one_url = {
        call.id
        for reply in trajectory.replies()
        for call in reply.calls
        if isinstance(call.action, UseBrowser) and len(tuple(_find_navigations(call.action.code))) == 1
    }
    not_found = {
        event.call_id
        for event in trajectory
        if isinstance(event, ToolResult)
        and isinstance(event.observation, PageSnapshot)
        and any(note.startswith(_NOT_FOUND) for note in event.observation.notes)
    }
    calls = opens_one_url & not_found  # With several URLs, the note does not say which one is missing.
    missing = {
        (_get_url_key(url), urlsplit(url).query) for id, url in iter_guessed_urls(trajectory) if id in calls
    }
    opened = _find_navigations(code) if missing else ()
    return next((url for url in opened if (_get_url_key(url), urlsplit(url).query) in missing), None)


def _get_page_keys(page: PageSnapshot) -> set[UrlKey]:
    urls = (page.url, *(tab.url for tab in page.tabs))
    return _get_url_keys((*urls, *_find_urls("\n".join((page.content, *page.notes)))))


def _find_navigations(code: str) -> Iterator[str]:
    calls = parse_calls(code)
    for call in () if isinstance(calls, ActionFailure) else calls:
        if call.name == "goto":
            yield str(call.arguments["url"])


def _find_urls(text: str) -> Iterator[str]:
    for pattern in (_FULL_URL, _BARE_URL):
        yield from map(_strip_punctuation, pattern.findall(text))


def _strip_punctuation(url: str) -> str:
    """Removes punctuation that ends a sentence."""
    return url.rstrip(".,;:!?*_")


def _get_url_keys(urls: Iterable[str]) -> set[UrlKey]:
    """Returns the host and path of each URL, together with the front page of each of these hosts."""
    keys = {key for url in urls if (key := _get_url_key(url))}
    return keys | {(host, "") for host, _ in keys}


def _get_url_key(url: str) -> UrlKey | None:
    """Returns the key of a URL, or None if it is not an http or https URL with a host."""
    url = url.strip()
    try:
        parts = urlsplit(url if "//" in url[:9] else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme.lower() not in ("http", "https") or not host or url.lower().startswith("about:"):
        return None
    host = "localhost" if host in _LOCAL_HOSTS else host.removeprefix("www.")
    return f"{host}:{port}" if port and port not in (80, 443) else host, parts.path.rstrip("/")
