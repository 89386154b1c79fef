"""Masks secrets in what a model writes, before it is recorded, shown or executed."""

import json
from collections.abc import Sequence
from typing import Any

from patchwright.resolver.llm.model import ChatMessage, Model, RawToolCall, Reply, ToolSpec, WrapperModel
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.security.masking import mask_value


class MaskingModel(WrapperModel):
    """A model whose replies contain no known secret: not in its text, reasoning or tool calls."""

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
                # Providers reject signed blocks that were changed, so those with a secret are left out.
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
