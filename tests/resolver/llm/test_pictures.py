"""What a model is shown: the pictures themselves where it sees, a line of text where it does not."""

import base64

import pytest
from pydantic import SecretStr

from demo.model import Endpoint, Turn
from resolver.llm.litellm import LitellmModel
from resolver.llm.model import FromUser
from runtime.observations import Picture

PIXEL = Picture(
    media="image/png",
    data=base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
    ),
)
SHOWN = FromUser(text="The button is cut off.", pictures=(PIXEL, PIXEL))


async def sent(name: str, sees: bool | None) -> object:
    """The content of the message as the endpoint got it."""
    async with Endpoint([Turn("Hello.")]) as endpoint:
        key = SecretStr("key")
        model = LitellmModel(name, base_url=endpoint.base_url, api_key=key, timeout=20, sees=sees)
        await model.reply([SHOWN], [])
        return endpoint.requests[0]["messages"][0]["content"]


@pytest.mark.parametrize(("name", "sees"), [("openai/gpt-4o", None), ("openai/recorded", True)])
async def test_a_model_that_sees_is_shown_the_pictures_after_the_text(name: str, sees: bool | None) -> None:
    url = "data:image/png;base64," + base64.b64encode(PIXEL.data).decode()
    assert await sent(name, sees) == [
        {"type": "text", "text": "The button is cut off."},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image_url", "image_url": {"url": url}},
    ]


@pytest.mark.parametrize(("name", "sees"), [("openai/recorded", None), ("openai/gpt-4o", False)])
async def test_a_model_that_does_not_see_is_told_how_many_pictures_it_misses(
    name: str, sees: bool | None
) -> None:
    assert await sent(name, sees) == (
        "The button is cut off.\n[pictures left out: 2; this model does not see]"
    )
