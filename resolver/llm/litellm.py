"""Any provider's model through litellm. The only file that knows litellm, and it imports it late: 2.4 s."""

import asyncio
import contextlib
import gc
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import SecretStr

from resolver.errors import (
    ContentFiltered,
    ContextOverflow,
    ModelBusy,
    ModelError,
    ModelRefused,
    QuotaSpent,
)
from resolver.events import Usage
from resolver.llm import chat, responses
from resolver.llm.bill import bill, estimate, wait_asked
from resolver.llm.model import Message, Reply, ToolCall, ToolSpec
from resolver.llm.received import Received, ask_plainly, listen
from resolver.settings.models import Price
from resolver.settings.settings import variable

SAID = 300  # characters of a provider's error that are passed on
_OBJECT = re.compile(r"( ssl:)?<[\w.]+ object at 0x[0-9a-f]+>")  # in aiohttp's words

RETRYABLE = frozenset({408, 409, 425, 429})  # and what is 500 or more
"""HTTP status codes after which the same request may work later. Source: RFC 9110, RFC 6585, RFC 8470."""

BUSY = frozenset({429, 503, 529})
"""Too many requests, or too much load. Source: RFC 9110; docs.anthropic.com/en/api/errors for 529."""

_SWITCHES = {
    # Its import fetches a table of prices from the internet otherwise, and hangs where there is none.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    # Else it reads a `.env` file into our environment.
    "LITELLM_MODE": "PRODUCTION",
    # The `openai` package walks every old message on each call: 80 ms a step at 300 steps against 4.
    "EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER": "true",
    # Else it looks for pictures in every old message, for a log that nobody reads: 3 ms a step at 300 steps.
    "MAX_BASE64_LENGTH_FOR_LOGGING": "0",
}

_HOOKED = frozenset(
    (
        "anthropic azure_ai cerebras dashscope databricks deepseek fireworks_ai gemini github groq hosted_vllm "
        "huggingface litellm_proxy mistral moonshot nvidia_nim openai openrouter perplexity sambanova "
        "together_ai xai zai"
    ).split()
)
"""Providers that litellm asks through the client that it is given; the others answer unbounded in bytes."""

_MARKED = frozenset("anthropic bedrock databricks openrouter vertex_ai".split())
"""Providers of Claude that take cache marks; what others do with a prompt that they know, they do unasked."""


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
    # It leaves half a million objects that stay; the collector would walk them again every few steps, 200 ms each.
    gc.freeze()
    return litellm


def _spare_its_log() -> None:
    """Let litellm keep no record of the calls of this task: nobody listens, and it takes a third of their time."""
    with contextlib.suppress(ImportError):  # another version of it keeps one, and is slower
        from litellm._internal_context import is_internal_call

        is_internal_call.set(True)


async def warm() -> None:
    """Import litellm in a thread while something else is waited for."""
    await asyncio.to_thread(_litellm)


def provider_of(name: str) -> str:
    """The provider of a model, as litellm calls it; empty when it knows none."""
    litellm = _litellm()
    try:
        return str(litellm.get_llm_provider(name)[1])
    except litellm.exceptions.BadRequestError:
        return ""


def _facts(name: str) -> Mapping[str, Any]:
    """What litellm's own table says about a model; empty where it does not know it."""
    table = _litellm().model_cost
    bare = name.replace("responses/", "")
    found = table.get(bare) or table.get(bare.partition("/")[2]) or {}
    return found if isinstance(found, Mapping) else {}


class LitellmModel:
    """A model by its litellm name, such as `anthropic/claude-sonnet-4-5` or `openai/gpt-5`.

    `base_url` None: the provider's own. `api_key` None: litellm reads the provider's variable. `timeout`: seconds
    for one reply, first byte to last. `ca_bundle`: CA certificates (PEM) instead of the system's. `sees` None: as
    litellm's own table says, and no where it does not know the model. `api` auto: OpenAI's Responses API where the
    model is offered there alone, or reasons and is OpenAI's own; chat completions for all others. `effort`: how
    much the model thinks before it answers; None: as the provider does by default. `price` None: what the provider
    says it cost, or what litellm's table says.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: SecretStr | None = None,
        timeout: float = 240.0,
        ca_bundle: Path | None = None,
        sees: bool | None = None,
        api: Literal["auto", "chat", "responses"] = "auto",
        effort: str | None = None,
        price: Price | None = None,
    ) -> None:
        self.name = name
        self._base_url = base_url
        self._api_key = api_key
        self._timeout = timeout
        self._ca_bundle = ca_bundle
        self._sees = sees
        self._api = api
        self._effort = effort
        self._price = price
        self._temperature: float | None = 0 if effort is None else None  # who thinks takes none

    @property
    def sees(self) -> bool:
        if self._sees is None:
            self._sees = bool(_litellm().supports_vision(self.name))
        return self._sees

    @property
    def window(self) -> int | None:
        known = _facts(self.name).get("max_input_tokens")
        return known if isinstance(known, int) and known > 0 else None

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        litellm = _litellm()
        _spare_its_log()
        if self._ca_bundle is not None:
            litellm.ssl_verify = str(self._ca_bundle)
        began = time.monotonic()
        with Received() as received:
            try:
                async with asyncio.timeout(self._timeout):  # litellm's own starts anew with every byte
                    answer = await self._ask(litellm, messages, tools, received)
            except TimeoutError as exc:
                raise ModelError(
                    f"The model {self.name} gave no reply within {self._timeout:g} s ({variable('model_timeout')}).",
                    usage=self._wasted(messages, received, began) if received.cut else None,
                ) from exc
            except tuple(litellm.exceptions.LITELLM_EXCEPTION_TYPES) as exc:
                if received.status == 200 and received.too_long:
                    # As one that ran into its limit, which is told, and not asked for again.
                    return Reply(
                        text="", calls=(), usage=self._wasted(messages, received, began), truncated=True
                    )
                if received.status in (0, 200) and (used := received.usage()) is not None:
                    # It was billed: it counts, and the run goes on.
                    return Reply(text="", calls=(), usage=self._usage(used, None, began))
                if self._temperature is not None and "temperature" in str(exc) and received.status == 400:
                    self._temperature = None  # some models know only their own
                    return await self.reply(messages, tools)
                wasted = self._wasted(messages, received, began) if received.cut else None
                self._refuse(litellm, exc, received, wasted)
        return self._reply(answer, began)

    async def _ask(
        self, litellm: Any, messages: Sequence[Message], tools: Sequence[ToolSpec], received: Received
    ) -> Any:
        provider = provider_of(self.name)
        request: dict[str, Any] = {
            "model": self.name,
            "api_base": self._base_url,
            "api_key": self._api_key.get_secret_value() if self._api_key else None,
            "timeout": self._timeout,
            "max_retries": 0,
            "logger_fn": received.hear,
        }
        if self._temperature is not None:
            request["temperature"] = self._temperature
        if provider in _HOOKED:
            request["client"] = self._client(litellm, provider)
        if self._speaks_responses(provider):
            if self._effort:
                request["reasoning"] = {"effort": self._effort}
            return await litellm.aresponses(
                input=responses.written(messages, reader=self.name, sees=self.sees),
                tools=responses.tools(tools) or None,
                **responses.ALWAYS,
                **request,
            )
        if self._effort:
            request["reasoning_effort"] = self._effort
        marked = "claude" in self.name.lower() and provider in _MARKED
        return await litellm.acompletion(
            messages=chat.written(messages, reader=self.name, sees=self.sees, marked=marked),
            tools=[tool.as_openai() for tool in tools] or None,
            **request,
        )

    def _client(self, litellm: Any, provider: str) -> Any:
        """litellm's own HTTP client for the provider, with our ear at it; litellm keeps and closes it."""
        from litellm.llms.custom_httpx.http_handler import get_async_httpx_client

        hooks = {"request": [ask_plainly], "response": [listen]}
        return get_async_httpx_client(
            llm_provider=litellm.LlmProviders(provider),
            params={"ssl_verify": str(self._ca_bundle) if self._ca_bundle else None, "event_hooks": hooks},
        )

    def _speaks_responses(self, provider: str) -> bool:
        if self._api != "auto":
            return self._api == "responses"
        if "/responses/" in self.name or _facts(self.name).get("mode") == "responses":
            return True
        elsewhere = self._base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")
        return provider == "openai" and not elsewhere and bool(_litellm().supports_reasoning(self.name))

    # --- what came ------------------------------------------------------------------------------------------

    def _reply(self, answer: Any, began: float) -> Reply:
        hidden = getattr(answer, "_hidden_params", None) or {}
        usage = self._usage(_mapping(getattr(answer, "usage", None)), hidden.get("response_cost"), began)
        if hasattr(answer, "output"):
            return self._from_responses(responses.Read(answer), usage)
        choice = answer.choices[0] if answer.choices else None
        message = choice.message if choice else None
        ended = choice.finish_reason if choice else None
        calls = tuple(
            ToolCall(
                id=_clean(call.id), name=_clean(call.function.name), arguments=_clean(call.function.arguments)
            )
            for call in getattr(message, "tool_calls", None) or ()
        )
        text = _clean(getattr(message, "content", None))
        if ended == "content_filter" and not calls:
            self._filtered(text, usage)
        return Reply(
            text=text,
            calls=calls,
            usage=usage,
            reasoning=_cleaned(chat.reasoning(message)),
            truncated=ended == "length",
        )

    def _from_responses(self, read: responses.Read, usage: Usage) -> Reply:
        if (read.incomplete == "content_filter" or read.refusal) and not read.calls:
            self._filtered(_clean(read.refusal), usage)
        return Reply(
            text=_clean(read.text),
            calls=tuple(
                ToolCall(id=_clean(call.id), name=_clean(call.name), arguments=_clean(call.arguments))
                for call in read.calls
            ),
            usage=usage,
            reasoning=_cleaned(tuple(read.reasoning)),
            truncated=read.incomplete == "max_output_tokens",
        )

    def _filtered(self, said: str, usage: Usage) -> NoReturn:
        words = f" It says: {_line(said)}" if said else ""
        raise ContentFiltered(
            f"The provider's filter holds back the reply of {self.name}.{words}", usage=usage
        )

    # --- what it cost ---------------------------------------------------------------------------------------

    def _usage(self, used: Mapping[str, Any], usd: object, began: float) -> Usage:
        seconds = time.monotonic() - began
        return bill(self.name, used, usd=usd, own=self._price, table=_facts(self.name), seconds=seconds)

    def _wasted(self, messages: Sequence[Message], received: Received, began: float) -> Usage:
        """What a reply that was cut off will have cost."""
        longest = _facts(self.name).get("max_output_tokens")
        used = received.usage() or estimate(messages, len(received.body), longest)
        return self._usage(used, None, began)

    # --- what went wrong ------------------------------------------------------------------------------------

    def _refuse(self, litellm: Any, exc: Exception, received: Received, usage: Usage | None) -> NoReturn:
        """Raise what the provider's error means for us."""
        errors = litellm.exceptions
        status = received.status or int(getattr(exc, "status_code", None) or 0)
        said = self._said(exc)
        wait = wait_asked(received.headers or _headers(exc))
        if isinstance(exc, errors.ContextWindowExceededError):
            raise ContextOverflow(f"The conversation is longer than {self.name} takes.") from exc
        if isinstance(exc, errors.ContentPolicyViolationError):
            raise ContentFiltered(
                f"The provider's filter refuses the request to {self.name}: {said}"
            ) from exc
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
            raise QuotaSpent(f"The account behind {variable('model_api_key')} has no credit: {said}") from exc
        if status in BUSY:
            raise ModelBusy(f"The model {self.name} is busy ({status}): {said}", retry_after=wait) from exc
        retryable = (
            status in RETRYABLE or status >= 500 or status in (0, 200) or isinstance(exc, errors.Timeout)
        )
        raise ModelError(
            # litellm calls it a 500 where nobody answers.
            f"The model {self.name} failed ({received.status or 'no answer'}): {received.problem or said}",
            retryable=retryable,
            retry_after=wait,
            usage=usage,
        ) from exc

    def _said(self, exc: Exception) -> str:
        """The provider's own words, on one line, without the key."""
        text = str(exc).rpartition("Exception - ")[2]
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):  # not every one sends JSON
            text = json.loads(text)["error"]["message"]
        line = _clean(text)
        if self._api_key is not None:
            line = line.replace(self._api_key.get_secret_value(), "<secret-hidden>")
        return _line(line)


def _mapping(usage: Any) -> dict[str, Any]:
    """litellm's usage as a mapping."""
    return {} if usage is None else usage if isinstance(usage, dict) else usage.model_dump()


def _headers(exc: Exception) -> dict[str, str]:
    """Those of the response, where litellm alone heard it."""
    headers = getattr(exc, "litellm_response_headers", None) or {}
    return {str(name).lower(): str(value) for name, value in dict(headers).items()}


def _line(text: str) -> str:
    line = " ".join(_OBJECT.sub("", text).split())
    return line if len(line) <= SAID else line[:SAID] + " ..."


def _clean(text: object) -> str:
    """Text that can be written as UTF-8: JSON can smuggle in halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""


def _cleaned(blocks: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """The same blocks, if they can be written as UTF-8; else none: changed ones would be refused."""
    try:
        json.dumps(blocks, ensure_ascii=False).encode()
    except (UnicodeEncodeError, TypeError, ValueError):
        return ()
    return blocks
