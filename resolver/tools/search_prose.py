"""What the model is told of searches of the web. Words live in `templates/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from resolver.prose import render

if TYPE_CHECKING:  # it imports this module
    from resolver.tools.web_search import Hits

NoSearch = Literal["key", "credit", "busy", "query", "broken", "silent", "unreachable", "unreadable"]
"""Why a provider gave nothing."""


def found(hits: Hits, used: int, most: int) -> str:
    """What a provider names, and that nobody has checked it. `used`: searches of this run, this one included."""
    return render("prompts/found_on_web.md.j2", found=hits, used=used, most=most).strip()


def failed(provider: str, why: NoSearch, seconds: float) -> str:
    """Why there is no answer, and what to do. `seconds`: that it was waited for."""
    return render("prompts/search_failed.md.j2", provider=provider, why=why, seconds=seconds).strip()


def not_searched(provider: str, most: int | None) -> str:
    """Why a query was not sent: `most` searches were made; None: there is a secret in it."""
    return render("prompts/not_searched.md.j2", provider=provider, most=most).strip()
