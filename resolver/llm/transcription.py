"""Transcribes speech with any provider's model through litellm."""

import asyncio
import time
from pathlib import Path

from pydantic import SecretStr

from patchwright.resolver.errors import ModelError
from patchwright.resolver.llm.http_capture import ResponseCapture
from patchwright.resolver.llm.litellm import LitellmModel, _import_litellm, get_provider
from patchwright.resolver.llm.model import Reply
from patchwright.resolver.llm.provider_errors import build_model_error


class LitellmTranscriber:
    """Transcribes recordings. The models have litellm's names, such as `whisper-1` or
    `groq/whisper-large-v3`.

    `base_url` and `api_key` belong to the provider of `main_model` and are used for all models of that
    provider. For models of other providers, litellm reads the environment variables of those providers.
    """

    def __init__(
        self,
        main_model: str,
        *,
        base_url: str | None = None,
        api_key: SecretStr | None = None,
        timeout: float = 240.0,
        ca_bundle: Path | None = None,
    ) -> None:
        self._main_model = main_model
        self._base_url = base_url
        self._api_key = api_key
        self._timeout = timeout
        self._ca_bundle = ca_bundle

    async def transcribe(self, recording: bytes, filename: str, model: str) -> Reply:
        model_name = model if "/" in model or not self._base_url else f"openai/{model}"
        is_same_provider = get_provider(model_name) == get_provider(self._main_model)
        transcriber = _TranscriptionModel(
            model_name,
            base_url=self._base_url if is_same_provider else None,
            api_key=self._api_key if is_same_provider else None,
            timeout=self._timeout,
            ca_bundle=self._ca_bundle,
        )
        return await transcriber.transcribe(recording, filename)


class _TranscriptionModel(LitellmModel):
    async def transcribe(self, recording: bytes, filename: str) -> Reply:
        litellm = _import_litellm()
        if self._ca_bundle is not None:
            litellm.ssl_verify = str(self._ca_bundle)
        started_at = time.monotonic()
        with ResponseCapture() as capture:
            try:
                async with asyncio.timeout(self._timeout):
                    response = await litellm.atranscription(
                        model=self.name,
                        file=(filename, recording),
                        api_base=self._base_url,
                        api_key=self._api_key.get_secret_value() if self._api_key else None,
                        timeout=self._timeout,
                        max_retries=0,
                    )
            except TimeoutError as exc:
                raise ModelError(f"The model {self.name} did not reply within {self._timeout:g} s.") from exc
            except tuple(litellm.exceptions.LITELLM_EXCEPTION_TYPES) as exc:
                raise build_model_error(
                    litellm,
                    exc,
                    capture,
                    None,
                    model_name=self.name,
                    api_key=self._api_key,
                    base_url=self._base_url,
                ) from exc
        cost = (getattr(response, "_hidden_params", None) or {}).get("response_cost")
        text = response.text if isinstance(response.text, str) else ""
        return Reply(
            text=text.encode("utf-8", "replace").decode(),
            tool_calls=(),
            usage=self._parse_usage({}, cost, started_at),
        )
