"""Trajectory -> one HTML file that shows the whole run, needs nothing else, and lets nothing in it act."""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Literal

from resolver.actions import Finish, Plan
from resolver.circumstances import Configured
from resolver.domain import (
    Asked,
    Commented,
    Delivered,
    Refused,
    RunId,
    Spent,
    SuiteRun,
    Verdict,
)
from resolver.events import Trajectory
from resolver.gate import last_account
from resolver.secrets import Secrets
from resolver.security.redact import without_secrets
from resolver.summary import clip
from resolver.viewer.exhibits import Album, Checks, Diff, Text, diff, inert, printed
from resolver.viewer.spending import HEIGHT, WIDTH, Spending, spending
from resolver.viewer.timeline import KINDS, Item, Read, timeline
from resolver.words import texts, wording
from runtime.egress.egress import WHY, Visit
from runtime.text import clip as shorten

MOST = 15_000_000  # bytes of the file
LIMITS = ((20_000, 4_000), (8_000, 4_000), (3_000, 4_000), (1_000, 4_000), (200, 400))
"""Characters of each text, and items of the timeline: the first pair with which the file is small enough."""
PAGE = (
    1_500_000  # characters of a timeline in a page that is somebody else's: it is made while its reader waits
)
PAGE_LIMITS = ((8_000, 3_000), (3_000, 3_000), (1_000, 3_000), (300, 3_000))
"""As LIMITS, for such a page."""
MOST_TESTS = 200  # of each list

MARKS = {"fixed": "✓", "regressed": "✗", "unproven": "?", "untested": "?", "empty": "∅"}
"""So that a verdict is told not by its colour alone."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A test with another outcome, or a doubtful one."""

    name: str
    before: str
    after: str
    told: str
    tone: Literal["bad", "doubt", "good"]


@dataclass(frozen=True, slots=True)
class Story:
    """All that the page shows of a run."""

    run: str
    title: str
    about: str
    """The repository and number."""
    address: str | None
    """Of the issue; None: it has none that may be a link."""
    verdict: Verdict | None
    mark: str
    outcome: str
    link: str | None
    """Where the outcome is to be seen."""
    account: Finish | None
    facts: tuple[tuple[str, str], ...]
    suites: tuple[tuple[str, SuiteRun, Text], ...]
    changed: tuple[Changed, ...]
    more_tests: int
    """Changed tests that are not listed."""
    remarks: tuple[str, ...]
    """What the change does to tests, and what a second model thinks of it, a sentence each."""
    plan: Checks | None
    patch: Diff | None
    curve: Spending | None
    visits: tuple[Visit, ...]
    tools: tuple[tuple[str, int, int], ...]
    """Name, calls, per cent of all calls."""
    items: tuple[Item, ...]


def view(run: RunId, trajectory: Trajectory, read: Read, secrets: Secrets) -> str:
    """The file, at most MOST bytes of UTF-8. `read` gives the logs of its delegates, as they are on disk."""
    shown = without_secrets(trajectory, secrets)
    logs: dict[RunId, Trajectory | None] = {}

    def reading(delegate: RunId) -> Trajectory | None:
        if delegate not in logs:
            found = read(delegate)
            logs[delegate] = found and without_secrets(found, secrets)
        return logs[delegate]

    page = ""
    for limit, most in LIMITS:
        album = Album()
        items = timeline(shown, reading, album, limit, most)
        if (limit, most) != LIMITS[-1] and sum(map(_length, _all(items))) > MOST:
            continue
        page = _page(_story(RunId(secrets.mask(run)), shown, items, limit), album)
        if len(page.encode()) <= MOST:
            break
    return page


def _length(item: Item) -> int:
    """Characters of its texts: less than they take in the file."""
    return sum(len(each.text) for each in item.exhibits if isinstance(each, Text))


@dataclass(frozen=True, slots=True)
class Parts:
    """A run for a page that is somebody else's, as markup that nothing in the run can get out of."""

    title: str
    head: str
    """What heads the page, the verdict first."""
    beside: str
    """Plan, calls, hosts and cost of a run that goes on; else they are in `main`."""
    main: str
    """All the rest, the timeline last."""


def parts(run: RunId, shown: Trajectory, read: Read, *, live: bool) -> Parts:
    """A run that is free of secrets, at most about PAGE characters of its timeline. `live`: it goes on."""
    for limit, most in PAGE_LIMITS:
        album = Album()
        items = timeline(shown, read, album, limit, most, live=live)
        if sum(map(_length, _all(items))) <= PAGE:
            break
    story = _story(run, shown, items, limit, over=not live)
    words = _words(story, album, live=live)
    head, beside, main = (_rendered(f"viewer/{name}.html.j2", words) for name in ("head", "beside", "main"))
    return Parts(inert(_titled(story)), head, beside if live else "", main)


def progress(run: RunId, shown: Trajectory, limit: int) -> Parts:
    """What changes of `parts` while a run goes on, but for its timeline."""
    story = _story(run, shown, (), limit)
    words = _words(story, Album(), live=True)
    head, beside = (_rendered(f"viewer/{name}.html.j2", words) for name in ("head", "beside"))
    return Parts(inert(_titled(story)), head, beside, "")


def entries(items: Iterable[Item], album: Album) -> dict[str, str]:
    """Markup of items of the timeline, by the id of its element."""
    words = {"album": album, "elapsed": elapsed, "size": wording.size}
    return {f"e{item.id}": _rendered("viewer/entries.html.j2", {**words, "items": (item,)}) for item in items}


def _titled(story: Story) -> str:
    return f"{story.verdict.kind}: {story.title}" if story.verdict else story.title


def _page(story: Story, album: Album) -> str:
    style, script = (_rendered(f"viewer/{name}.j2", {}) for name in ("style.css", "script.js"))
    sources = {
        "style": style,
        "script": script,
        # By digest: even markup that got through would bring no script and no style of its own.
        "style_digest": _digest(style),
        "script_digest": _digest(script),
    }
    return _rendered("viewer/page.html.j2", _words(story, album, live=False) | sources)


def _words(story: Story, album: Album, *, live: bool) -> dict[str, object]:
    """What the templates know."""
    used = {item.kind for item in _all(story.items)}
    return {
        "story": story,
        "title": _titled(story),
        "album": album,
        "live": live,
        "kinds": {kind: label for kind, label in KINDS.items() if live or kind in used},
        "elapsed": elapsed,
        "size": wording.size,
        "why": WHY,
        "width": WIDTH,
        "height": HEIGHT,
    }


def _rendered(template: str, words: Mapping[str, object]) -> str:
    return inert(texts.environment().get_template(template).render(words))


def _digest(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _all(items: tuple[Item, ...]) -> list[Item]:
    return [each for item in items for each in (item, *_all(item.nested))]


def _story(
    run: RunId, trajectory: Trajectory, items: tuple[Item, ...], limit: int, *, over: bool = False
) -> Story:
    """`over`: it is known that nobody works on it."""
    started = trajectory.started
    verdict = _verdict(trajectory)
    outcome, link = _outcome(trajectory, over)
    patch = trajectory.checkpoint()
    changes = changed_tests(verdict) if verdict else ()
    return Story(
        run=run,
        title=clip(_title(trajectory) or run, 250),
        about=f"{started.job.repo}#{started.thread.number}" if started else "",
        address=_safe(started.thread.url) if started else None,
        verdict=verdict,
        mark=MARKS[verdict.kind] if verdict else "",
        outcome=shorten(outcome, limit),
        link=_safe(link),
        account=last_account(trajectory),
        facts=tuple(_facts(trajectory)),
        suites=tuple(_suites(verdict, limit)),
        changed=changes[:MOST_TESTS],
        more_tests=len(changes[MOST_TESTS:]),
        remarks=tuple(shorten(each, limit) for each in remarks(verdict)) if verdict else (),
        plan=_plan(trajectory),
        patch=_patch(patch.diff, limit) if patch and not patch.empty else None,
        curve=spending(trajectory),
        visits=trajectory.visits(),
        tools=tool_counts(trajectory),
        items=items,
    )


def _title(trajectory: Trajectory) -> str:
    started, assigned = trajectory.started, trajectory.assigned
    return started.thread.title if started else assigned.task if assigned else ""


def _verdict(trajectory: Trajectory) -> Verdict | None:
    settled = trajectory.settled
    if settled and isinstance(settled.outcome, Delivered | Commented):
        return settled.outcome.verdict
    return trajectory.verdict


def _outcome(trajectory: Trajectory, over: bool) -> tuple[str, str | None]:
    """What became of the run in a sentence, and the address where that is to be seen."""
    match settled.outcome if (settled := trajectory.settled) else None:
        case Delivered(url=url, number=number, draft=draft):
            return f"{'Draft pull' if draft else 'Pull'} request #{number} is open.", url
        case Commented(url=url, reason=reason, branch=branch):
            return reason + (f" The work is kept on the branch {branch}." if branch else ""), url
        case Asked(url=url, question=question):
            return f"It asked: {question}", url
        case Refused(explanation=explanation):
            return explanation, None
        case None:
            ended = trajectory.ended
            return (ended.detail if ended else _unsettled(trajectory, over)), None


def _unsettled(trajectory: Trajectory, over: bool) -> str:
    if over:
        return "The run broke off before it came to an end."
    return "The run has not ended." if trajectory.entries else "The run has not begun."


def _facts(trajectory: Trajectory) -> list[tuple[str, str]]:
    spent = trajectory.spent()
    cached = f", {spent.cached_tokens:,} of them cached" if spent.cached_tokens else ""
    facts = [
        ("Cost", _cost(spent, trajectory.configured)),
        ("Working time", wording.duration(spent.seconds)),
        ("Steps", f"{spent.steps}"),
        ("Tokens", f"{spent.prompt_tokens:,} read{cached}, {spent.completion_tokens:,} written"),
    ]
    if started := trajectory.started:
        facts += [
            ("Model", started.model),
            ("Sandbox", f"{started.sandbox}, network {started.network}"),
            ("Base", f"{started.base[:12]} on {started.base_branch}"),
            ("Asked for by", started.job.requester.login if started.job.requester else "the operator"),
        ]
    elif assigned := trajectory.assigned:
        facts += [("Model", assigned.model), ("Asked for by", f"the run {assigned.parent}")]
    if under := trajectory.configured:
        dollars = [f"${under.usd}"] if spent.cost is not None else []  # else nothing holds them
        most = f"{under.steps} steps", *dollars, wording.duration(under.seconds)
        facts += [("At most", ", ".join(most)), ("Patchwright", under.version)]
    if trajectory.entries:
        facts.append(("Began", f"{trajectory.entries[0].at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"))
    return facts


def _cost(spent: Spent, under: Configured | None) -> str:
    """With what its limit in dollars means, where some price is unknown."""
    said = wording.money(spent).removeprefix("cost ")
    if not spent.unpriced or under is None:
        return said
    holds = "cannot hold" if spent.cost is None else "holds for what is known"
    return f"{said}; the limit of ${under.usd} {holds}"


def _suites(verdict: Verdict | None, limit: int) -> list[tuple[str, SuiteRun, Text]]:
    runs = (("Before", verdict.before), ("After", verdict.after)) if verdict else ()
    return [
        (when, suite, printed(f"Output {when.lower()}", suite.output, limit, fold=True))
        for when, suite in runs
        if suite is not None
    ]


def changed_tests(verdict: Verdict) -> tuple[Changed, ...]:
    """The tests that tell the verdict, the bad news first."""
    before = verdict.before.results if verdict.before else {}
    after = verdict.after.results if verdict.after else {}
    lists: tuple[tuple[str, tuple[str, ...], Literal["bad", "doubt", "good"]], ...] = (
        ("fails now", verdict.newly_failing, "bad"),
        ("is new, and fails", verdict.still_failing, "bad"),
        ("fails as it was", verdict.rewritten, "bad"),
        ("not run any more", verdict.missing, "bad"),
        ("flaky", verdict.flaky, "doubt"),
        ("passes now", verdict.newly_passing, "good"),
    )
    # One that the patch adds passes now because it was run on the old code too, and failed there.
    absent = {"passes now": "new; fails on the old code"}
    return tuple(
        Changed(
            name, before.get(name, absent.get(told, "not there")), after.get(name, "not there"), told, tone
        )
        for told, names, tone in lists
        for name in names
    )


def remarks(verdict: Verdict) -> list[str]:
    """What the lists of tests do not say, a sentence each."""
    said = [
        *verdict.weakened,
        *(f"{path}, which held tests, was deleted." for path in verdict.deleted),
        *(f"The tests were run without the change to {path}." for path in verdict.set_aside),
    ][:MOST_TESTS]
    if opinion := verdict.opinion:
        would = "would take it" if opinion.approves else "would not take it"
        said.append(f"A second model ({opinion.model}), which decides nothing here, {would}: {opinion.words}")
    return said


def tool_counts(trajectory: Trajectory) -> tuple[tuple[str, int, int], ...]:
    """How often each tool was called and how many per cent of the calls that is, the most used first."""
    calls = Counter(call.action.kind for decided in trajectory.decisions() for call in decided.calls)
    return tuple(
        (name.replace("_", " "), count, round(100 * count / calls.total()))
        for name, count in calls.most_common()
    )


def _plan(trajectory: Trajectory) -> Checks | None:
    """The plan as it stood last."""
    plans = (
        call.action
        for decided in reversed(trajectory.decisions())
        for call in reversed(decided.calls)
        if isinstance(call.action, Plan)
    )
    return Checks(last.items) if (last := next(plans, None)) else None


def _patch(content: bytes, limit: int) -> Diff:
    return diff("The change", content.decode(errors="replace"), 4 * limit)


def _safe(url: str | None) -> str | None:
    """The address, where a click on it opens a page and nothing else."""
    return url if url and url.startswith(("https://", "http://")) else None


def elapsed(seconds: float) -> str:
    """Time since the beginning: `0:07`, `12:30`, `1:02:03`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
