"""Estimates the number of tokens in a text or conversation, before a provider has counted them."""

from collections.abc import Iterable

from patchwright.resolver.llm.model import AssistantMessage, ChatMessage, Model, UserMessage

BYTES_PER_TOKEN = 4  # a common rule of thumb; bytes, because characters would be wrong for non-Latin scripts
TOKENS_PER_MESSAGE = 4  # tokens of overhead for each message
TOKENS_PER_IMAGE = (
    1_500  # tokens; for the largest images, Anthropic counts at most 1,600 and OpenAI about 1,100
)

# Share of the context window that a conversation may use. The rest is for the model's reply and the next tool
# result.
WINDOW_SHARE = 0.7
MAX_CONTEXT_TOKENS = 100_000  # tokens of a conversation; a longer one costs more and gets worse replies


def max_context_tokens(model: Model) -> int:
    """Returns the maximum tokens of a conversation with this model, by default."""
    if model.context_window is None:
        return MAX_CONTEXT_TOKENS
    return min(MAX_CONTEXT_TOKENS, int(WINDOW_SHARE * model.context_window))


def estimate_text_tokens(text: str) -> int:
    """Returns the approximate number of tokens."""
    return len(text.encode(errors="replace")) // BYTES_PER_TOKEN


def estimate_tokens(messages: Iterable[ChatMessage]) -> int:
    """Returns the approximate number of tokens in a conversation, without the tool definitions."""
    return sum(_estimate_message_tokens(message) for message in messages)


def _estimate_message_tokens(message: ChatMessage) -> int:
    size = TOKENS_PER_MESSAGE + estimate_text_tokens(message.text)
    match message:
        case UserMessage(images=images):
            return size + TOKENS_PER_IMAGE * len(images)
        case AssistantMessage(tool_calls=calls, reasoning=reasoning):
            call_tokens = sum(estimate_text_tokens(call.arguments) + TOKENS_PER_MESSAGE for call in calls)
            return size + call_tokens + sum(estimate_text_tokens(str(block)) for block in reasoning)
        case _:
            return size
