"""Masks secrets in a model's replies before the replies are recorded, shown or executed."""

import json
from collections.abc import Sequence
from typing import Any

from patchwright.resolver.llm.model import ChatMessage, Model, RawToolCall, Reply, ToolSpec, WrapperModel
from patchwright.resolver.masking import mask_value
from patchwright.resolver.secrets import Secrets


class MaskingModel(WrapperModel):
    """Wraps a model and masks known secrets in the texts and tool calls of its replies. If the reasoning
    contains a secret, all reasoning is dropped.
    """

    def __init__(self, model: Model, secrets: Secrets) -> None:
        super().__init__(model)
        self._secrets = secrets

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        reply = await self._model.reply(messages, tools)
        reasoning: tuple[dict[str, Any], ...] = mask_value(reply.reasoning, self._secrets)
        return reply.model_copy(
            update={
                "text": self._secrets.mask(reply.text),
                "tool_calls": tuple(self._mask_call(call) for call in reply.tool_calls),
                # Providers reject altered reasoning blocks, so the reasoning is dropped instead of masked.
                "reasoning": reasoning if reasoning == reply.reasoning else (),
            }
        )

    def _mask_call(self, call: RawToolCall) -> RawToolCall:
        # JSON can write each character of a secret as `\uXXXX`, so the values are masked too.
        arguments = self._secrets.mask(call.arguments)
        try:
            values = json.loads(arguments)
        except (ValueError, RecursionError):
            values = None
        masked = mask_value(values, self._secrets)
        if masked != values:
            arguments = json.dumps(masked)
        return call.model_copy(
            update={
                "id": self._secrets.mask(call.id),
                "name": self._secrets.mask(call.name),
                "arguments": arguments,
            }
        )
