"""Builds the browsing agent's prompt from the run's log.

The sections have the same order as in arXiv:2407.16741v2, appendix K, but their wording differs.
"""

from collections.abc import Iterator

from patchwright.resolver.browsing.structured_output import (
    TYPE_DESCRIPTIONS,
    OutputSchemaError,
    build_example,
    parse_output,
)
from patchwright.resolver.events import SystemPrompt, ToolResult, Trajectory
from patchwright.resolver.llm.model import ChatMessage, SystemMessage, UserMessage
from patchwright.resolver.rendering.template_renderer import render, render_prompt
from patchwright.resolver.run_calls import iter_calls
from patchwright.resolver.tool_actions.subagent_actions import OutputField
from patchwright.runtime.actions import UseBrowser
from patchwright.runtime.browser.action_space import describe_calls
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ActionFailure, PageSnapshot, SnapshotOptions

MAX_ANSWER_LENGTH = 4_000
"""Maximum length of a report, in characters."""


class BrowsingStep(FrozenModel):
    """One reply and its outcome."""

    thought: str
    code: str | None
    """The code of the action; None if the reply contained no readable action."""
    failure: str | None
    url: str | None
    """URL of the browser after the step; None if the step did not reach the page."""
    content: str | None
    """Content of the page after the step; None if the prompt no longer shows that page."""


class BrowsingPrompt(FrozenModel):
    """Variables of the prompt template."""

    task: str
    calls: tuple[str, ...]
    """Names of the available browser calls."""
    action_space: str
    """Description of these calls."""
    shown: SnapshotOptions
    page: PageSnapshot
    failure: str | None
    """Error of the last action."""
    steps: tuple[BrowsingStep, ...]
    max_steps: int
    concise: bool
    fields: tuple[OutputField, ...]
    """Fields that the report must contain. Without fields, the report is free text."""
    type_descriptions: dict[str, str]
    """Describes each type of field in words."""
    example: str
    """An example report that matches the fields."""
    can_search: bool
    """True if the calling agent can search the web."""


def build_prompt(trajectory: Trajectory) -> tuple[ChatMessage, ...]:
    """Builds the next prompt. The prompt shows as many of the last pages as the run's options say. For earlier steps,
    it shows only the actions.
    """
    system_prompt = next((event for event in trajectory if isinstance(event, SystemPrompt)), None)
    started, page = trajectory.subagent_started, find_last_page(trajectory)
    assert system_prompt and started and page, "a snapshot is taken before the first request"
    steps = tuple(_build_steps(trajectory, started.browser.pages))
    fields = started.fields
    prompt = BrowsingPrompt(
        task=started.task,
        calls=started.browser.calls,
        action_space=describe_calls(started.browser.calls),
        shown=started.browser.snapshot,
        page=page,
        failure=steps[-1].failure if steps else page.error,
        steps=steps,
        max_steps=started.steps,
        concise=started.concise,
        fields=fields,
        type_descriptions=TYPE_DESCRIPTIONS,
        example=build_example(fields),
        can_search=started.can_search,
    )
    images = (page.screenshot,) if page.screenshot else ()
    text = render(
        "prompts/browsing.md.j2", prompt=prompt, task=prompt.task.strip(), max_report_length=MAX_ANSWER_LENGTH
    )
    return (SystemMessage(text=system_prompt.text), UserMessage(text=text, images=images))


def list_pages(trajectory: Trajectory, excluded_call: str | None = None) -> list[PageSnapshot]:
    """Returns the pages that the browser has shown, in order. The page that the call `excluded_call` returned
    is left out.
    """
    return [
        event.observation
        for event in trajectory
        if isinstance(event, ToolResult)
        and isinstance(event.observation, PageSnapshot)
        and event.call_id != excluded_call
    ]


def find_last_page(trajectory: Trajectory) -> PageSnapshot | None:
    """Returns the last page that the browser has shown, or None."""
    return next(reversed(list_pages(trajectory)), None)


def list_answer_pages(trajectory: Trajectory) -> list[PageSnapshot]:
    """Returns the page snapshots that contain an answer by the agent."""
    return [page for page in list_pages(trajectory) if page.user_message is not None]


def get_output_fields(trajectory: Trajectory) -> tuple[OutputField, ...]:
    """Returns the fields that the answer must contain. If there are none, the answer is free text."""
    return trajectory.subagent_started.fields if trajectory.subagent_started else ()


def find_schema_error(trajectory: Trajectory, page: PageSnapshot) -> str:
    """Returns why the answer in this page snapshot violates the output schema or is too long. Returns an empty
    string if the answer is valid or if there is no answer.
    """
    fields = get_output_fields(trajectory)
    if page.user_message is None or not fields:
        return ""
    try:
        output = parse_output(page.user_message, fields)
    except OutputSchemaError as problem:
        return str(problem)
    if len(output) > MAX_ANSWER_LENGTH:
        return f"it is {len(output):,} characters long; the limit is {MAX_ANSWER_LENGTH:,}"
    return ""


def _find_failure(trajectory: Trajectory, page: PageSnapshot) -> str | None:
    """Returns the error of the calls that led to this page, or None if there was no error."""
    if page.error is None and (problem := find_schema_error(trajectory, page)):
        return render_prompt("off_form.md.j2", problem=problem)
    return page.error


def _build_steps(trajectory: Trajectory, pages_in_prompt: int) -> Iterator[BrowsingStep]:
    page_ids = [id(page) for page in list_pages(trajectory)]
    # The prompt shows the last page in a section of its own.
    shown_ids = set(page_ids[-pages_in_prompt:-1])
    for call in iter_calls(trajectory):
        result = call.observation
        page = result if isinstance(result, PageSnapshot) else None
        failure = result.message if isinstance(result, ActionFailure) else None
        yield BrowsingStep(
            thought=call.reply.thought,
            code=call.action.code if isinstance(call.action, UseBrowser) else None,
            failure=_find_failure(trajectory, page) if page else failure,
            url=page.url if page else None,
            content=page.content if page and id(page) in shown_ids else None,
        )
