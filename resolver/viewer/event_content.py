"""Describes the log entries that are not steps of the agent, for the viewer's timeline."""

from dataclasses import dataclass

from patchwright.resolver.descriptions import LOST_WITH_SANDBOX, NEW_SANDBOX, label_verdict
from patchwright.resolver.events import (
    AgentStopped,
    AuxiliaryModelCall,
    Event,
    JobCompleted,
    Message,
    SystemPrompt,
    VerificationCompleted,
)
from patchwright.resolver.rendering import filters
from patchwright.resolver.run_events import (
    Condensation,
    EnvironmentPrepared,
    NetworkAccess,
    RunConfigured,
    RunResumed,
)
from patchwright.resolver.viewer.blocks import Block, ImageCollection, build_code_block, build_text_block
from patchwright.resolver.viewer.call_blocks import ItemKind
from patchwright.resolver.viewer.labels import (
    MESSAGE_TITLES,
    MODEL_CALL_TITLES,
    format_settings,
    format_setup_title,
    format_usage,
)
from patchwright.runtime.egress_policy import DENIAL_MESSAGES
from patchwright.runtime.output_text import clip_line


@dataclass(frozen=True, slots=True)
class EventContent:
    """What the timeline shows about a log entry that is not a step of the agent."""

    title: str
    result: str = ""
    is_failure: bool = False
    details: str = ""
    blocks: tuple[Block, ...] = ()
    kind: ItemKind = "program"


def build_event_content(
    event: Event, item_id: str, images: ImageCollection, limit: int
) -> EventContent | None:
    """Returns the content of the timeline item with this id, or None if the event is not shown.

    Adds the images of the event to `images`. Texts are clipped to about `limit` characters.
    """
    match event:
        case SystemPrompt(text=text, tools=tools):
            block = build_text_block("system prompt", text, limit, is_folded=True)
            return EventContent(f"The agent started with {len(tools)} tools", blocks=(block,))
        case RunConfigured(version=version):
            block = build_code_block("settings", "\n".join(format_settings(event)), limit, is_folded=True)
            return EventContent("Settings of the run", f"Patchwright {version}", blocks=(block,))
        case EnvironmentPrepared():
            return _describe_setup(event, limit)
        case Message():
            return _describe_message(event, item_id, images, limit)
        case AuxiliaryModelCall(purpose=purpose, usage=usage):
            return EventContent(
                MODEL_CALL_TITLES[purpose], is_failure=purpose == "failed", details=format_usage(usage)
            )
        case Condensation():
            return _describe_condensation(event, limit)
        case NetworkAccess():
            return _describe_network_access(event, limit)
        case _:
            return _describe_end(event, limit)


def _describe_setup(event: EnvironmentPrepared, limit: int) -> EventContent:
    base_image, blocks = event.base_image, list[Block]()
    if base_image:
        text = base_image.problem or base_image.image
        blocks.append(build_text_block(f"image for {base_image.language}", text, limit))
    if event.commands:
        blocks.append(build_code_block("commands", "\n".join(event.commands), limit))
    messages = filter(None, (*event.warnings, event.problem))
    blocks.extend(build_text_block("", message, limit) for message in messages)
    return EventContent(
        format_setup_title(event),
        is_failure=event.problem is not None or bool(base_image and base_image.problem),
        details="" if event.was_cached or event.problem else filters.format_duration(event.seconds),
        blocks=tuple(blocks),
    )


def _describe_message(message: Message, item_id: str, images: ImageCollection, limit: int) -> EventContent:
    text, source = message.text, message.source
    if message.new_sandbox:
        block = build_text_block("", text, limit, is_folded=True)
        return EventContent(NEW_SANDBOX, LOST_WITH_SANDBOX, blocks=(block,))
    if source == "resume" and message.trigger_id is not None:
        return EventContent("Someone resumed the run", blocks=(build_text_block("", text, limit),))
    is_prompt = source == "initial_prompt"
    image_blocks = tuple(images.add(image, "Image from the issue", item_id) for image in message.images)
    block = build_text_block("text" if is_prompt else "", text, limit, is_folded=is_prompt)
    return EventContent(MESSAGE_TITLES[source], blocks=(block, *image_blocks))


def _describe_condensation(event: Condensation, limit: int) -> EventContent:
    title = "The conversation was condensed"
    if event.cause == "overflow":
        title = "Context limit reached: the conversation was condensed"
    summary = event.summary
    return EventContent(
        title,
        details=f"{event.tokens_before:,} → {event.tokens_after:,} tokens",
        blocks=(build_text_block("summary", summary, limit, is_folded=True),) if summary else (),
    )


def _describe_network_access(event: NetworkAccess, limit: int) -> EventContent:
    is_sandbox = event.origin == "sandbox"
    denied = [
        f"denied {visit.host}: {DENIAL_MESSAGES[visit.denied]}" for visit in event.visits if visit.denied
    ]
    hosts = dict.fromkeys(visit.host for visit in event.visits if not visit.denied)
    return EventContent(
        "The sandbox used the network" if is_sandbox else "MCP servers were called",
        clip_line(", ".join((*hosts, *([f"{len(denied)} denied"] if denied else ())))),
        is_failure=bool(denied),
        blocks=(build_text_block("", "\n".join(denied), limit),) if denied else (),
    )


def _describe_end(event: Event, limit: int) -> EventContent | None:
    """Returns the content of an event that ends the agent's work or the job; None for all other events."""
    match event:
        case AgentStopped(reason=reason, detail=detail):
            return EventContent(
                f"The agent stopped: {reason}",
                is_failure=reason not in ("finished", "input_required"),
                blocks=(build_text_block("", detail, limit),),
                kind="end",
            )
        case VerificationCompleted(verdict=verdict):
            label = "Verdict on the affected tests" if verdict.partial else "Verdict"
            return EventContent(
                f"{label}: {label_verdict(verdict.kind, documentation_only=verdict.documentation_only)}",
                is_failure=verdict.kind == "regressed",
                blocks=(build_text_block("", verdict.reason, limit),),
                kind="end",
            )
        case RunResumed(run=run):
            return EventContent(f"The work continued in the run {run}", kind="end")
        case JobCompleted(outcome=outcome):
            is_failure = outcome.kind == "rejected"
            return EventContent(f"The job completed: {outcome.kind}", is_failure=is_failure, kind="end")
        case _:  # the page header shows the start events; edits show a checkpoint's changes
            return None
