"""Transcribes speech with any provider's model through litellm."""

import asyncio
import time
from dataclasses import replace

from patchwright.resolver.errors import ModelError
from patchwright.resolver.llm.http_capture import ResponseCapture
from patchwright.resolver.llm.litellm import LitellmModel, _import_litellm, get_provider
from patchwright.resolver.llm.model import ProviderConnection, Reply
from patchwright.resolver.llm.provider_errors import build_model_error


class LitellmTranscriber:
    """Transcribes recordings. The models have litellm's names, such as `whisper-1` or
    `groq/whisper-large-v3`.

    The URL and the key of `connection` belong to the provider of `main_model` and are used for all models of
    that provider. For models of other providers, litellm reads the environment variables of those providers.
    """

    def __init__(self, main_model: str, connection: ProviderConnection) -> None:
        self._main_model = main_model
        self._connection = connection

    async def transcribe(self, recording: bytes, filename: str, model: str) -> Reply:
        connection = self._connection
        model_name = model if "/" in model or not connection.base_url else f"openai/{model}"
        if get_provider(model_name) != get_provider(self._main_model):
            connection = replace(connection, base_url=None, api_key=None)
        return await _TranscriptionModel(model_name, connection).transcribe(recording, filename)


class _TranscriptionModel(LitellmModel):
    async def transcribe(self, recording: bytes, filename: str) -> Reply:
        litellm, connection = _import_litellm(), self._connection
        if connection.ca_bundle is not None:
            litellm.ssl_verify = str(connection.ca_bundle)
        started_at = time.monotonic()
        with ResponseCapture() as capture:
            try:
                async with asyncio.timeout(connection.timeout):
                    response = await litellm.atranscription(
                        model=self.name,
                        file=(filename, recording),
                        api_base=connection.base_url,
                        api_key=connection.api_key.get_secret_value() if connection.api_key else None,
                        timeout=connection.timeout,
                        max_retries=0,
                    )
            except TimeoutError as exc:
                raise ModelError(
                    f"The model {self.name} did not reply within {connection.timeout:g} s."
                ) from exc
            except tuple(litellm.exceptions.LITELLM_EXCEPTION_TYPES) as exc:
                raise build_model_error(
                    litellm, exc, capture, None, model_name=self.name, connection=connection
                ) from exc
        cost = (getattr(response, "_hidden_params", None) or {}).get("response_cost")
        text = response.text if isinstance(response.text, str) else ""
        return Reply(
            text=text.encode("utf-8", "replace").decode(),
            tool_calls=(),
            usage=self._parse_usage({}, cost, started_at),
        )
