"""Sends the first request of a process while litellm is still being imported, which takes seconds.

`predict_request` returns the request that litellm is going to send. When litellm sends its request to the same
address, `EarlyRequest` answers with the response that is already on its way. So litellm parses this response, and
reports its errors, as always. Even if a version of litellm writes other parameters into its request, the conversation
is the same, so its reply is used rather than paid for twice. Only a request to another address goes to the provider.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from patchwright.resolver.llm.chat_completions import to_chat_messages
from patchwright.resolver.llm.http_capture import request_uncompressed
from patchwright.resolver.llm.model import (
    ChatMessage,
    ProviderConnection,
    SystemMessage,
    ToolSpec,
    UserMessage,
)
from patchwright.resolver.llm.model_table import get_model_info, has_adapted_requests, needs_cache_breakpoints

logger = logging.getLogger(__name__)

_ANTHROPIC_VARIABLES = frozenset({"ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN"})
"""Variables with which litellm changes the address or the credentials of a request."""

_OAUTH_TOKEN_PREFIX = "sk-ant-oat"  # Requests with such a token have other headers.


@dataclass(frozen=True)
class PredictedRequest:
    """The request that litellm is going to send."""

    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


def predict_request(
    model_name: str,
    connection: ProviderConnection,
    messages: Sequence[ChatMessage],
    tools: Sequence[ToolSpec],
    environ: Mapping[str, str],
) -> PredictedRequest | None:
    """Returns litellm's first request for a conversation, or None if it cannot be predicted.

    It can be predicted for OpenAI-compatible endpoints and for Anthropic, for a conversation of text without replies.
    """
    provider, _, name = model_name.partition("/")
    base_url = connection.base_url
    key = (
        connection.api_key.get_secret_value() if connection.api_key else environ.get("ANTHROPIC_API_KEY", "")
    )
    if not isinstance(messages[0], SystemMessage) or not all(map(_is_text, messages[1:])):
        return None
    if provider == "anthropic" and not (
        _ANTHROPIC_VARIABLES & environ.keys() or key.startswith(_OAUTH_TOKEN_PREFIX)
    ):
        info = get_model_info(model_name)
        if not key or not isinstance(info.get("max_output_tokens"), int):
            return None
        url = f"{base_url or 'https://api.anthropic.com'}/v1/messages"
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01", "accept": "application/json"}
        return PredictedRequest(url, headers, _to_anthropic_body(name, messages, tools, info))
    if provider == "openai" and base_url and connection.api_key and not has_adapted_requests(name):
        headers = {"authorization": f"Bearer {key}"}
        url = f"{base_url.rstrip('/')}/chat/completions"
        return PredictedRequest(url, headers, _to_openai_body(name, messages, tools))
    return None


def _is_text(message: ChatMessage) -> bool:
    return isinstance(message, UserMessage) and not message.images and bool(message.text)


def _to_openai_body(name: str, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Source: platform.openai.com/docs/api-reference/chat"""
    sent = to_chat_messages(messages, model_name=name, supports_vision=False)
    offered = {"tools": [tool.to_openai_tool() for tool in tools]} if tools else {}
    return {"model": name, "messages": sent, "temperature": 0, **offered}


def _to_anthropic_body(
    name: str, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], model_info: Mapping[str, Any]
) -> dict[str, Any]:
    """Source: platform.claude.com/docs/en/api/messages"""
    sent = to_chat_messages(
        messages, model_name=name, supports_vision=False, cache_control=needs_cache_breakpoints(name)
    )
    blocks = [
        each["content"] if isinstance(each["content"], list) else [{"type": "text", "text": each["content"]}]
        for each in sent
    ]
    offered = [
        {
            "name": tool.name,
            "input_schema": tool.parameters,
            "type": "custom",
            "description": tool.description,
        }
        for tool in tools
    ]
    return {
        "model": name,
        # Consecutive messages of the user become one message.
        "messages": [{"role": "user", "content": [block for message in blocks[1:] for block in message]}],
        **({} if model_info.get("supports_sampling_params") is False else {"temperature": 0}),
        **({"tools": offered} if offered else {}),
        "system": blocks[0],
        "max_tokens": model_info["max_output_tokens"],
    }


class EarlyRequest(httpx.AsyncBaseTransport):
    """A request that is on its way, as the transport of the HTTP client with which litellm sends the same request."""

    def __init__(self, predicted: PredictedRequest, connection: ProviderConnection) -> None:
        self._predicted = predicted
        self._client = httpx.AsyncClient(
            timeout=connection.timeout,
            verify=ssl.create_default_context(cafile=bundle) if (bundle := connection.ca_bundle) else True,
            event_hooks={"request": [request_uncompressed]},
            follow_redirects=True,
        )
        self._sent = asyncio.Event()
        self._is_answered = False
        self._response = asyncio.create_task(self._send())

    async def wait_until_sent(self) -> None:
        """Returns when the request has been sent, or has failed."""
        sending = asyncio.create_task(self._sent.wait())
        await asyncio.wait({sending, self._response}, return_when=asyncio.FIRST_COMPLETED)
        sending.cancel()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Returns the response to the request. Raises httpx.HTTPError."""
        if not self._is_answered and request.url == httpx.URL(self._predicted.url):
            self._is_answered = True
            return _relay(await self._response)
        logger.warning("early model request not used", extra={"url": str(request.url.copy_with(query=None))})
        return _relay(await self._client.send(request, stream=True))

    async def aclose(self) -> None:
        self._response.cancel()
        await asyncio.gather(self._response, return_exceptions=True)
        await self._client.aclose()

    async def _send(self) -> httpx.Response:
        request = self._client.build_request(
            "POST",
            self._predicted.url,
            headers=dict(self._predicted.headers),
            json=self._predicted.body,
            extensions={"trace": self._trace},
        )
        return await self._client.send(request, stream=True)

    async def _trace(self, event: str, _: object) -> None:
        if event.endswith("send_request_body.complete"):
            self._sent.set()


def _relay(response: httpx.Response) -> httpx.Response:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    stream = _RelayedStream(response.stream)
    return httpx.Response(response.status_code, headers=response.headers, stream=stream)


class _RelayedStream(httpx.AsyncByteStream):
    """The body of a response. If it breaks, litellm must not send the request again, because it is billed."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield chunk
        except httpx.RemoteProtocolError as exc:  # After this error, litellm tries again.
            raise httpx.ReadError(str(exc)) from exc

    async def aclose(self) -> None:
        await self._stream.aclose()
