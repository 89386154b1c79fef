"""What a browsing agent's model is shown: one prompt, a function of the run's log.

Source: arXiv:2407.16741v2, appendix K (the order of the sections); the words are ours.
"""

from collections.abc import Iterator

from resolver.actions import AnswerField
from resolver.browsing import delegate_prose
from resolver.browsing.answers import KINDS, OffForm, example, formed
from resolver.events import Observed, Prompted, Trajectory
from resolver.llm.model import FromUser, Message, System
from runtime.actions import UseBrowser
from runtime.browser.calls import DEFAULT, describe
from runtime.frozen import Frozen
from runtime.observations import Failed, Page

IN_VIEW = 1
"""So many of the last pages are shown. Source: arXiv:2506.03011, appendix B (1 in all of its experiments)."""
MAX_ANSWER = 4_000
"""Characters of a report that arrive."""


class Step(Frozen):
    """One reply, and what came of it."""

    thought: str
    code: str | None
    """None: there was none that could be read."""
    failure: str | None
    url: str | None
    """Where the browser was after it. None: it did not get to the page."""
    tree: str | None
    """The page after it, if that one is still shown."""


class BrowsingPrompt(Frozen):
    """What the template says."""

    task: str
    calls: int
    space: str
    """The action space in words."""
    page: Page
    failure: str | None
    """What went wrong with the last action."""
    steps: tuple[Step, ...]
    most_steps: int
    concise: bool
    fields: tuple[AnswerField, ...]
    """What the report has to contain; empty: it is free."""
    kinds: dict[str, str]
    """In words."""
    example: str
    """A report in the form that is asked for."""
    searchable: bool
    """Whoever asks can search the web."""


def shown(trajectory: Trajectory, in_view: int = IN_VIEW) -> tuple[Message, ...]:
    """The next prompt. The last `in_view` pages are in it; of what came before, only what was done."""
    prompted = next((event for event in trajectory if isinstance(event, Prompted)), None)
    assigned, page = trajectory.assigned, last_page(trajectory)
    assert prompted and assigned and page, "a page is looked at before the model is asked"
    steps = tuple(_steps(trajectory, in_view))
    fields = assigned.fields
    prompt = BrowsingPrompt(
        task=assigned.task,
        calls=len(DEFAULT),
        space=describe(DEFAULT),
        page=page,
        failure=steps[-1].failure if steps else page.error,
        steps=steps,
        most_steps=assigned.steps,
        concise=assigned.concise,
        fields=fields,
        kinds=KINDS,
        example=example(fields),
        searchable=assigned.searchable,
    )
    pictures = (page.screenshot,) if page.screenshot else ()
    return (
        System(text=prompted.system),
        FromUser(text=delegate_prose.browsing_prompt(prompt, MAX_ANSWER), pictures=pictures),
    )


def pages(trajectory: Trajectory, but: str | None = None) -> list[Page]:
    """What the browser has shown, in order; without what came of one call."""
    return [
        event.observation
        for event in trajectory
        if isinstance(event, Observed) and isinstance(event.observation, Page) and event.call != but
    ]


def last_page(trajectory: Trajectory) -> Page | None:
    """What the browser showed last."""
    return next(reversed(pages(trajectory)), None)


def answers(trajectory: Trajectory) -> list[Page]:
    """The pages on which it gave an answer."""
    return [page for page in pages(trajectory) if page.answer is not None]


def asked_fields(trajectory: Trajectory) -> tuple[AnswerField, ...]:
    """What the answer has to contain; empty: it is free."""
    return trajectory.assigned.fields if trajectory.assigned else ()


def off_form(trajectory: Trajectory, page: Page) -> str:
    """Why the answer that was given on this page is not in the form that was asked for; empty: it is."""
    fields = asked_fields(trajectory)
    if page.answer is None or not fields:
        return ""
    try:
        arrives = formed(page.answer, fields)
    except OffForm as problem:
        return str(problem)
    if len(arrives) > MAX_ANSWER:
        return f"it is {len(arrives):,} characters long, and {MAX_ANSWER:,} of them would arrive"
    return ""


def _failure(trajectory: Trajectory, page: Page) -> str | None:
    """What went wrong with the calls after which the page is as it is."""
    if page.error is None and (problem := off_form(trajectory, page)):
        return delegate_prose.off_form(problem)
    return page.error


def _steps(trajectory: Trajectory, in_view: int) -> Iterator[Step]:
    results = {event.call: event.observation for event in trajectory if isinstance(event, Observed)}
    seen = [id(page) for page in pages(trajectory)]
    # The last page has a section of its own.
    full = set(seen[-in_view:-1])
    for reply in trajectory.decisions():
        for call in reply.calls:
            result = results.get(call.id)
            page = result if isinstance(result, Page) else None
            failed = result.message if isinstance(result, Failed) else None
            yield Step(
                thought=reply.thought,
                code=call.action.code if isinstance(call.action, UseBrowser) else None,
                failure=_failure(trajectory, page) if page else failed,
                url=page.url if page else None,
                tree=page.tree if page and id(page) in full else None,
            )
