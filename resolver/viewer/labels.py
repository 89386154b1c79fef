"""The labels, titles and one-line texts of the viewer's timeline."""

import json
from collections.abc import Iterator

from patchwright.resolver.cost import format_usd
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.rendering import filters
from patchwright.resolver.run_events import EnvironmentPrepared, RunConfigured
from patchwright.resolver.viewer.call_blocks import ItemKind

KIND_LABELS: dict[ItemKind, str] = {
    "thought": "Thoughts",
    "command": "Commands",
    "edit": "Edits",
    "read": "Reading",
    "browse": "Browsing",
    "plan": "Plans",
    "tool": "Other calls",
    "program": "System",
    "end": "Outcome",
}
MESSAGE_TITLES = {
    "initial_prompt": "The agent received its initial prompt",
    "program": "Patchwright reminded the agent",
    "comment": "Someone commented",
    "resume": "The run continued",
    "nudge": "The agent was warned that it seems stuck",
    "planning": "The agent was asked to review its plan",
    "baseline": "The agent received the test results of the base commit",
    "verification": "The agent received the verification result",
}
MODEL_CALL_TITLES = {
    "vision": "A model described an image or recording",
    "condense": "A model summarized the conversation",
    "commit": "A model wrote the message of the commit",
    "review": "The review model was asked",
    "failed": "A request to the model failed",
}


def format_usage(usage: ReplyUsage) -> str:
    """Formats the tokens and the cost of one request."""
    tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    price = format_usd(usage.usd) if usage.usd is not None else ""
    return ", ".join(filter(None, (tokens if usage.prompt_tokens else "", price)))


def format_settings(event: RunConfigured) -> Iterator[str]:
    """Yields one line per setting of the run. A line about the repository's own setting starts with `repository:`."""
    yield f"limits: {event.steps} steps, ${event.usd}, {filters.format_duration(event.seconds)}"
    yield from (f"model for {purpose}: {name}" for purpose, name in event.models.items())
    yield from (f"{key} = {json.dumps(value)}" for key, value in sorted(event.settings.items()))
    yield from (f"repository: {key} = {json.dumps(value)}" for key, value in sorted(event.repository.items()))


def format_setup_title(event: EnvironmentPrepared) -> str:
    if event.problem is not None:
        return "The repository's setup failed"
    if not event.commands:
        return "The sandbox image was chosen by language"
    return f"The repository's setup {'was cached by an earlier run' if event.was_cached else 'completed'}"
