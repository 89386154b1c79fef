"""Any provider's model through litellm. The only file that knows litellm, and it imports it late: 2.4 s."""

import asyncio
import base64
import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from pydantic import SecretStr

from resolver.errors import ContextOverflow, ModelError, ModelRefused
from resolver.events import Usage
from resolver.llm.model import (
    FromModel,
    FromTool,
    FromUser,
    Message,
    Reply,
    System,
    ToolCall,
    ToolSpec,
    unseen,
)
from resolver.settings import variable
from runtime.observations import Picture

SAID = 300  # characters of a provider's error that are passed on

RETRYABLE = frozenset({408, 409, 425, 429})  # and what is 500 or more
"""HTTP status codes after which the same request may work later. Source: RFC 9110, RFC 6585, RFC 8470."""

_SWITCHES = {
    # Its import fetches a table of prices from the internet otherwise, and hangs where there is none.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    # Else it reads a `.env` file into our environment.
    "LITELLM_MODE": "PRODUCTION",
    # The `openai` package walks every old message on each call: 80 ms a step at 300 steps against 4.
    "EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER": "true",
}


@cache
def _litellm() -> Any:
    """litellm, imported and made quiet. `Any`: its types are not worth the minutes that mypy would need."""
    for name, value in _SWITCHES.items():
        os.environ.setdefault(name, value)  # it knows no other way to be told before its import
    import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.drop_params = True  # `temperature` is refused by reasoning models
    litellm.num_retries = 0  # `Patient` asks again, and it knows the budget
    return litellm


async def warm() -> None:
    """Import litellm in a thread while something else is waited for."""
    await asyncio.to_thread(_litellm)


class LitellmModel:
    """A model by its litellm name, such as `anthropic/claude-sonnet-4-5` or `openai/gpt-5`.

    `base_url` None: the provider's own. `api_key` None: litellm reads the provider's variable. `timeout`: seconds
    for one reply, first byte to last. `ca_bundle`: CA certificates (PEM) instead of the system's. `sees` None: as
    litellm's own table says, and no where it does not know the model.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: SecretStr | None = None,
        timeout: float = 300.0,
        ca_bundle: Path | None = None,
        sees: bool | None = None,
    ) -> None:
        self.name = name
        self._base_url = base_url
        self._api_key = api_key
        self._timeout = timeout
        self._ca_bundle = ca_bundle
        self._sees = sees

    @property
    def sees(self) -> bool:
        if self._sees is None:
            self._sees = bool(_litellm().supports_vision(self.name))
        return self._sees

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        litellm = _litellm()
        if self._ca_bundle is not None:
            litellm.ssl_verify = str(self._ca_bundle)
        began = time.monotonic()
        received = _Received()
        try:
            async with asyncio.timeout(self._timeout):  # litellm's own starts anew with every byte
                answer = await litellm.acompletion(
                    model=self.name,
                    messages=[_message(message, self.sees) for message in messages],
                    tools=[tool.as_openai() for tool in tools] or None,
                    temperature=0,
                    base_url=self._base_url,
                    api_key=self._api_key.get_secret_value() if self._api_key else None,
                    timeout=self._timeout,
                    max_retries=0,
                    logger_fn=received.hear,
                )
        except TimeoutError as exc:
            raise ModelError(f"The model {self.name} gave no reply within {self._timeout:g} s.") from exc
        except tuple(litellm.exceptions.LITELLM_EXCEPTION_TYPES) as exc:
            if (tokens := received.usage()) is not None:
                usage = Usage(model=self.name, seconds=time.monotonic() - began, **tokens)
                return Reply(text="", calls=(), usage=usage)  # it was billed: it counts, and the run goes on
            self._refuse(litellm, exc)
        return self._reply(answer, time.monotonic() - began)

    def _reply(self, answer: Any, seconds: float) -> Reply:
        choice = answer.choices[0] if answer.choices else None
        message = choice.message if choice else None
        blocks = getattr(message, "thinking_blocks", None) or ()
        return Reply(
            text=_clean(getattr(message, "content", None)),
            calls=tuple(
                ToolCall(
                    id=_clean(call.id),
                    name=_clean(call.function.name),
                    arguments=_clean(call.function.arguments),
                )
                for call in getattr(message, "tool_calls", None) or ()
            ),
            usage=self._usage(answer, seconds),
            reasoning=tuple(dict(block) for block in blocks),
            truncated=choice is not None and choice.finish_reason == "length",
        )

    def _usage(self, answer: Any, seconds: float) -> Usage:
        usage = getattr(answer, "usage", None)
        details = getattr(usage, "prompt_tokens_details", None)
        usd = answer._hidden_params.get("response_cost")  # None where litellm's table has no price
        return Usage(
            model=self.name,
            prompt_tokens=getattr(usage, "prompt_tokens", None) or 0,
            cached_tokens=getattr(details, "cached_tokens", None) or 0,
            completion_tokens=getattr(usage, "completion_tokens", None) or 0,
            usd=None if usd is None else Decimal(str(usd)),
            seconds=seconds,
        )

    def _refuse(self, litellm: Any, exc: Exception) -> NoReturn:
        """Raise what the provider's error means for us."""
        errors = litellm.exceptions
        status = int(getattr(exc, "status_code", None) or 0)
        said = self._said(exc)
        if isinstance(exc, errors.ContextWindowExceededError):
            raise ContextOverflow(f"The conversation is longer than {self.name} takes.") from exc
        if "LLM Provider NOT provided" in str(exc):
            raise ModelRefused(
                f"`{self.name}` names no provider: write {variable('model')} as provider/model, such as "
                "openai/gpt-5, or openai/NAME for any OpenAI-compatible endpoint."
            ) from exc
        if status in (401, 403) or isinstance(exc, errors.AuthenticationError):
            # Without the provider's words: some repeat part of the key.
            raise ModelRefused(
                f"The provider of {self.name} refuses the key ({status}): "
                f"check {variable('model_api_key')}, or the provider's own variable."
            ) from exc
        if status == 404:
            raise ModelRefused(
                f"The provider knows no model {self.name} (404): "
                f"check {variable('model')} and {variable('model_base_url')}. It says: {said}"
            ) from exc
        if status == 402 or (status == 429 and "quota" in said.lower() and "billing" in said.lower()):
            raise ModelRefused(
                f"The account behind {variable('model_api_key')} has no credit: {said}"
            ) from exc
        retryable = status in RETRYABLE or status >= 500 or status == 200 or isinstance(exc, errors.Timeout)
        raise ModelError(
            f"The model {self.name} failed ({status or 'no answer'}): {said}",
            retryable=retryable,
            retry_after=_retry_after(exc),
        ) from exc

    def _said(self, exc: Exception) -> str:
        """The provider's own words, on one line, without the key."""
        text = str(exc).rpartition("Exception - ")[2]
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):  # not every one sends JSON
            text = json.loads(text)["error"]["message"]
        line = " ".join(_clean(text).split())
        if self._api_key is not None:
            line = line.replace(self._api_key.get_secret_value(), "<secret-hidden>")
        return line if len(line) <= SAID else line[:SAID] + " ..."


class _Received:
    """What came back over the wire, for when litellm cannot make a reply of it."""

    def __init__(self) -> None:
        self._raw = ""

    def hear(self, details: Mapping[str, Any]) -> None:
        """litellm calls this before the request and after the response."""
        raw = details.get("original_response")
        self._raw = raw if isinstance(raw, str) else ""

    def usage(self) -> dict[str, int] | None:
        """Tokens that were billed for it, in OpenAI's or Anthropic's words; None when it names none."""
        try:
            used = json.loads(self._raw)["usage"]
            prompt = used.get("prompt_tokens", used.get("input_tokens"))
            completion = used.get("completion_tokens", used.get("output_tokens"))
            return {"prompt_tokens": int(prompt), "completion_tokens": int(completion)}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


def _message(message: Message, sees: bool) -> dict[str, Any]:
    """In the form of OpenAI's chat completions, which litellm turns into each provider's own."""
    match message:
        case FromUser(text=text, pictures=pictures) if pictures and sees:
            return {"role": "user", "content": [{"type": "text", "text": text}, *map(_picture, pictures)]}
        case FromUser(text=text, pictures=pictures) if pictures:
            return {"role": "user", "content": f"{text}\n{unseen(len(pictures))}"}
        case System(text=text) | FromUser(text=text):
            return {"role": message.role, "content": text}
        case FromTool(call=call, text=text):
            return {"role": "tool", "tool_call_id": call, "content": text}
        case FromModel(text=text, calls=calls, reasoning=reasoning):
            sent: dict[str, Any] = {"role": "assistant", "content": text or None}
            if calls:
                sent["tool_calls"] = [_call(call) for call in calls]
            if reasoning:
                sent["thinking_blocks"] = list(reasoning)
            return sent


def _picture(picture: Picture) -> dict[str, Any]:
    data = base64.b64encode(picture.data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{picture.media};base64,{data}"}}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _clean(text: object) -> str:
    """Text that can be written as UTF-8: JSON can smuggle in halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""


def _retry_after(exc: Exception) -> float | None:
    headers = getattr(exc, "litellm_response_headers", None) or {}
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        return None  # absent, or a date: then our own waiting does
