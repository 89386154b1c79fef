"""How long a text is for a model, before a provider has counted it."""

from collections.abc import Iterable

from resolver.llm.model import FromModel, FromUser, Message

BYTES_PER_TOKEN = 4  # the usual rule of thumb; by bytes, so that it holds for other scripts than ours, too
PER_MESSAGE = 4  # tokens around each message
PICTURE = (
    1_500  # tokens; Anthropic counts at most 1,600, OpenAI about 1,100 for a picture of its largest size
)


def of_text(text: str) -> int:
    """About so many tokens."""
    return len(text.encode(errors="replace")) // BYTES_PER_TOKEN


def of_messages(messages: Iterable[Message]) -> int:
    """About so many tokens, without the descriptions of the tools."""
    return sum(_of_message(message) for message in messages)


def _of_message(message: Message) -> int:
    size = PER_MESSAGE + of_text(message.text)
    match message:
        case FromUser(pictures=pictures):
            return size + PICTURE * len(pictures)
        case FromModel(calls=calls, reasoning=reasoning):
            written = sum(of_text(call.arguments) + PER_MESSAGE for call in calls)
            return size + written + sum(of_text(str(block)) for block in reasoning)
        case _:
            return size
