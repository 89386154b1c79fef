"""Renders texts for the model about its web searches. The templates are in `templates/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from patchwright.resolver.text.template_renderer import render

if TYPE_CHECKING:  # circular import
    from patchwright.resolver.tools.search_providers import SearchResults

SearchFailure = Literal["key", "credit", "busy", "query", "broken", "silent", "unreachable", "unreadable"]
"""Reason why a provider returned no results."""


def render_search_results(results: SearchResults, used: int, max_searches: int) -> str:
    """Renders search results with a note that they are unverified. `used` is the number of the run's
    searches, including this one.
    """
    return render("prompts/found_on_web.md.j2", results=results, used=used, max_searches=max_searches).strip()


def render_search_failure(provider: str, reason: SearchFailure, seconds: float) -> str:
    """Renders why a search failed and what to do instead. `seconds` is the timeout of the request."""
    return render("prompts/search_failed.md.j2", provider=provider, reason=reason, seconds=seconds).strip()


def render_search_rejection(provider: str, max_searches: int | None) -> str:
    """Renders why a query was not sent.

    `max_searches` is the limit that the run has reached. If `max_searches` is None, the reason is that the
    query contains a secret.
    """
    return render("prompts/not_searched.md.j2", provider=provider, max_searches=max_searches).strip()
