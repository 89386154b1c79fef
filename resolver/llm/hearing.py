"""Speech written down by any provider's model through litellm."""

import asyncio
import time
from pathlib import Path

from pydantic import SecretStr

from resolver.errors import ModelError
from resolver.llm.litellm import LitellmModel, _litellm, provider_of
from resolver.llm.model import Reply
from resolver.llm.received import Received


class LitellmHearing:
    """Models by their litellm names, such as `whisper-1` or `groq/whisper-large-v3`.

    `beside`: the model whose `base_url` and `api_key` these are; another provider's are its own variables'.
    """

    def __init__(
        self,
        beside: str,
        *,
        base_url: str | None = None,
        api_key: SecretStr | None = None,
        timeout: float = 240.0,
        ca_bundle: Path | None = None,
    ) -> None:
        self._beside = beside
        self._base_url = base_url
        self._api_key = api_key
        self._timeout = timeout
        self._ca_bundle = ca_bundle

    async def hear(self, recording: bytes, file: str, model: str) -> Reply:
        named = model if "/" in model or not self._base_url else f"openai/{model}"
        ours = provider_of(named) == provider_of(self._beside)
        transcriber = _Transcriber(
            named,
            base_url=self._base_url if ours else None,
            api_key=self._api_key if ours else None,
            timeout=self._timeout,
            ca_bundle=self._ca_bundle,
        )
        return await transcriber.hear(recording, file)


class _Transcriber(LitellmModel):
    async def hear(self, recording: bytes, file: str) -> Reply:
        litellm = _litellm()
        if self._ca_bundle is not None:
            litellm.ssl_verify = str(self._ca_bundle)
        began = time.monotonic()
        with Received() as received:
            try:
                async with asyncio.timeout(self._timeout):
                    answer = await litellm.atranscription(
                        model=self.name,
                        file=(file, recording),
                        api_base=self._base_url,
                        api_key=self._api_key.get_secret_value() if self._api_key else None,
                        timeout=self._timeout,
                        max_retries=0,
                    )
            except TimeoutError as exc:
                raise ModelError(f"{self.name} gave no answer within {self._timeout:g} s.") from exc
            except tuple(litellm.exceptions.LITELLM_EXCEPTION_TYPES) as exc:
                self._refuse(litellm, exc, received, None)
        cost = (getattr(answer, "_hidden_params", None) or {}).get("response_cost")
        text = answer.text if isinstance(answer.text, str) else ""
        return Reply(
            text=text.encode("utf-8", "replace").decode(), calls=(), usage=self._usage({}, cost, began)
        )
