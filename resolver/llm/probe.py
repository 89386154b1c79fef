"""Whether a model can drive the agent: one tiny tool call says so before any money is spent on work."""

from typing import Literal

import pydantic_core

from resolver.errors import ModelError
from resolver.events import Usage
from resolver.llm.bill import together
from resolver.llm.model import FromUser, Message, Model, Reply, ToolSpec
from resolver.llm.textual import Textual
from runtime.frozen import Frozen

NUMBER = 417  # no model says it by chance

ASKED = f"Report the number {NUMBER} with the tool report_number, and do nothing else."

TOOL = ToolSpec(
    name="report_number",
    description="Report a number.",
    parameters={
        "type": "object",
        "properties": {"number": {"type": "integer", "description": "The number to report."}},
        "required": ["number"],
        "additionalProperties": False,
    },
)


class Fitness(Frozen):
    """What a model is good for."""

    model: str
    tools: Literal["native", "text", "none"]
    """How it calls tools: as such, in text (the setting `model_tools`), or not at all."""
    why: str
    """What was seen, in one sentence."""
    sees: bool
    usage: Usage | None
    """What it cost to find out; None: nothing came back."""


async def probe(model: Model) -> Fitness:
    """Ask for one call as such, then for one in text. A model that fails is `none`, with the reason."""
    prompt: tuple[Message, ...] = (FromUser(text=ASKED),)
    bills: list[Usage] = []
    seen = ""
    for way, asked in (("native", model), ("text", Textual(model))):
        try:
            reply = await asked.reply(prompt, (TOOL,))
        except ModelError as exc:
            seen = str(exc)
            if exc.usage is not None:
                bills.append(exc.usage)
            if exc.retryable or type(exc) is not ModelError:
                break  # it is down, or refuses us: in text it would do the same
            continue
        bills.append(reply.usage)
        if (wrong := _wrong(reply)) is None:
            why = "it called the tool as it was asked"
            return Fitness(
                model=model.name,
                tools="native" if way == "native" else "text",
                why=why,
                sees=model.sees,
                usage=together(bills),
            )
        seen = wrong
    return Fitness(
        model=model.name, tools="none", why=seen, sees=model.sees, usage=together(bills) if bills else None
    )


def _wrong(reply: Reply) -> str | None:
    """What is wrong with a reply to the probe; None: nothing."""
    if not reply.calls:
        return f"it answered without calling the tool: {' '.join(reply.text.split())[:200] or '(nothing)'}"
    call = reply.calls[0]
    try:
        arguments = pydantic_core.from_json(call.arguments)
    except ValueError:
        arguments = None
    if call.name == TOOL.name and arguments == {"number": NUMBER}:
        return None
    return f"it called {call.name[:60]} with {call.arguments[:100]} instead"
