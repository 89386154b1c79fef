"""The page's texts: one typed function for each template."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Literal
from urllib.parse import quote, urlencode

from markupsafe import Markup

from bot.glance import Glance
from bot.page.kit import Part
from bot.page.live import View
from bot.page.overview import STATES, VERDICTS, Outcomes, Overview
from bot.redis.sessions import Session
from resolver.viewer.exhibits import inert
from resolver.words import texts, wording

Refusal = Literal[
    "crowded", "forge", "forged", "log_in", "method", "not_found", "not_yours", "redis", "too_large", "too_often",
    "unclear", "watched_enough",
]  # fmt: skip
Snag = Literal["cancelled", "ended", "misfit", "refused", "wrong_token"]
"""Why somebody is asked to log in once more."""
Told = Literal["stop", "retry"]

STATIC = {
    "style.css": ("text/css; charset=utf-8", ("viewer/style.css.j2", "page/style.css.j2")),
    "viewer.js": ("text/javascript; charset=utf-8", ("viewer/script.js.j2",)),
    "welcome.js": ("text/javascript; charset=utf-8", ("page/welcome.js.j2",)),
    "page.js": ("text/javascript; charset=utf-8", ("page/script.js.j2",)),
}


@dataclass(frozen=True)
class Around:
    """What every page knows."""

    base: str
    """The path below which we are reached, without a slash at its end."""
    session: Session | None


@cache
def static(name: str) -> tuple[str, bytes]:
    """Type and content of a file that pages load. Raises KeyError where there is none."""
    kind, templates = STATIC[name]
    environment = texts.environment()
    return kind, "\n".join(environment.get_template(one).render() for one in templates).encode()


@cache
def _address(name: str) -> str:
    """Another one when the file is another one, so that browsers may keep it."""
    return f"/static/{name}?v={hashlib.sha256(static(name)[1]).hexdigest()[:16]}"


def listed(around: Around, overview: Overview, parts: tuple[Part, ...]) -> str:
    return render(
        "list",
        around,
        overview=overview,
        outcomes=_figures(overview.outcomes),
        parts=parts,
        states=STATES,
        verdicts=VERDICTS,
        pages=_pages(overview),
        dollars=_dollars,
    )


def run(
    around: Around,
    glance: Glance,
    view: View,
    *,
    may_stop: bool,
    may_retry: bool,
    told: Told | None,
    once: str,
    at: datetime,
) -> str:
    """`once`: what its buttons bring, so that a second press of them is the same."""
    return render(
        "run",
        around,
        run=glance,
        address=f"/runs/{quote(glance.run, safe='')}",
        view=view,
        title=view.parts.title,
        head=Markup(view.parts.head),
        beside=Markup(view.parts.beside),
        main=Markup(view.parts.main),
        may_stop=may_stop,
        may_retry=may_retry,
        told=told,
        once=once,
        at=at,
    )


def login(around: Around, back_to: str, *, github: bool, operator: bool, why: Snag | None) -> str:
    return render("login", around, back_to=back_to, github=github, operator=operator, why=why)


def refused(around: Around, why: Refusal) -> str:
    return render("refused", around, why=why)


def _figures(outcomes: Outcomes) -> list[tuple[str, str, str]]:
    """Name, figure, and what it means."""
    success, each = outcomes.success, outcomes.usd_per_merged
    priced = not outcomes.unpriced
    unpriced = f"; {outcomes.unpriced:,} with an unknown price, which no limit in dollars counts"
    return [
        ("Runs", f"{outcomes.runs:,}", "in the list below"),
        ("Pull requests", f"{len(outcomes.pulls):,}", "opened or worked on"),
        ("Merged", f"{outcomes.merged:,}", f"{outcomes.closed:,} closed without a merge"),
        ("Zero-touch", f"{outcomes.zero_touch:,}", "merged without a commit of anybody else"),
        ("Cost", _dollars(outcomes.usd, priced), "of these runs" + ("" if priced else unpriced)),
        (
            "Per merge",
            "–" if each is None else _dollars(each, priced),
            "cost, shared out among what was merged",
        ),
        (
            "Infrastructure",
            "–" if success is None else f"{100 * success:.1f} %",
            "of ended runs had no failure of server, sandbox or GitHub",
        ),
    ]


def _dollars(usd: float, priced: bool) -> str:
    """What is known of a cost; `priced`: that is all of it."""
    known = f"${usd:,.2f}" if usd < 1000 else f"${usd:,.0f}"
    if priced:
        return known
    return f"≥ {known}" if usd else "unknown"


def _pages(overview: Overview) -> dict[str, str]:
    """Addresses of the neighbours in the list, by what they are called."""
    page, query = overview.wanted.page, overview.wanted.query
    found = {"Newer": page - 1, "Older": page + 1}
    there = {name: number for name, number in found.items() if 1 <= number <= overview.pages}
    return {name: f"/?{urlencode({**query, 'page': str(number)})}" for name, number in there.items()}


def render(template: str, around: Around, **words: object) -> str:
    """A page of ours, with what all of them know; characters that would act are made visible."""
    made = texts.environment().get_template(f"page/{template}.html.j2").render(
        base=around.base,
        session=around.session,
        style=_address("style.css"),
        viewer=_address("viewer.js"),
        script=_address("page.js"),
        looking=_address("welcome.js"),
        ago=_ago,
        when=_when,
        elapsed=wording.duration,
        quoted=lambda value: quote(value, safe=""),
        **words,
    )  # fmt: skip
    return inert(made)


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _ago(seconds: float) -> str:
    return wording.duration(max(0.0, datetime.now(UTC).timestamp() - seconds))
