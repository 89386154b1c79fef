"""Names the fields of LLM in the errors of models, which otherwise name the settings of the server."""

from collections.abc import Sequence

from patchwright.resolver.errors import ModelError
from patchwright.resolver.llm.model import ChatMessage, Model, Reply, ToolSpec, WrapperModel

_FIELDS = {
    "PATCHWRIGHT_MODEL_API_KEY": "api_key of the LLM",
    "PATCHWRIGHT_MODEL_BASE_URL": "base_url of the LLM",
    "PATCHWRIGHT_MODEL_TIMEOUT": "timeout of the LLM",
    "PATCHWRIGHT_MODEL_RETRY_TIMEOUT": "retry_seconds of the LLM",
    "PATCHWRIGHT_TOOL_CALLING": "tool_calling of the LLM",
    "PATCHWRIGHT_MODEL": "model of the LLM",
}
"""The settings of the server, and the fields of LLM with the same meaning.

A name that begins like another one comes first.
"""


class _ErrorNamingModel(WrapperModel):
    """Renames the settings in the errors of another model. The errors keep their class and their other fields."""

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        try:
            return await self._model.reply(messages, tools)
        except ModelError as exc:
            exc.args = tuple(_rename(part) if isinstance(part, str) else part for part in exc.args)
            raise


def _rename(text: str) -> str:
    """Returns the text with the fields of LLM in place of the settings."""
    for setting, field in _FIELDS.items():
        text = text.replace(setting, field)
    return text


def build_error_naming_model(model: Model) -> Model:
    """Returns the model with errors that name the fields of LLM."""
    return _ErrorNamingModel(model)
