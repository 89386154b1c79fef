"""Images in chat completions: sent to models with vision, replaced by a line of text for others."""

import base64

import pytest
from pydantic import SecretStr

from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.llm.litellm import LitellmModel
from patchwright.resolver.llm.model import ProviderConnection, UserMessage
from patchwright.runtime.observations import ImageData

PIXEL = ImageData(
    media_type="image/png",
    data=base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
    ),
)
SHOWN = UserMessage(text="The button is cut off.", images=(PIXEL, PIXEL))


async def send_images(name: str, sees: bool | None) -> object:
    """Returns the content of the message that the endpoint received."""
    async with RecordedModel([RecordedTurn("Hello.")]) as endpoint:
        key = SecretStr("key")
        model = LitellmModel(
            name,
            ProviderConnection(base_url=endpoint.base_url, api_key=key, timeout=20),
            supports_vision=sees,
        )
        await model.reply([SHOWN], [])
        return endpoint.requests[0]["messages"][0]["content"]


@pytest.mark.parametrize(("name", "sees"), [("openai/gpt-4o", None), ("openai/recorded", True)])
async def test_a_model_with_vision_gets_the_images_after_the_text(name: str, sees: bool | None) -> None:
    url = "data:image/png;base64," + base64.b64encode(PIXEL.data).decode()
    assert await send_images(name, sees) == [
        {"type": "text", "text": "The button is cut off."},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image_url", "image_url": {"url": url}},
    ]


@pytest.mark.parametrize(("name", "sees"), [("openai/recorded", None), ("openai/gpt-4o", False)])
async def test_a_model_without_vision_is_told_how_many_images_are_omitted(
    name: str, sees: bool | None
) -> None:
    assert await send_images(name, sees) == (
        "The button is cut off.\n[images omitted: 2; this model has no vision]"
    )
