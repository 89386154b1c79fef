"""Asking again: how long, how often, and when not."""

import pytest

from resolver.errors import ModelError, ModelRefused
from resolver.events import Usage
from resolver.llm.model import Reply
from resolver.llm.patient import Patient
from tests.resolver.scripted import Line, Scripted

REPLY = Reply(text="hello", calls=(), usage=Usage(model="m"))


class Waits:
    """Passes the time without spending it."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def ask(waits: Waits, *script: Line, budget: float = 600.0) -> Reply:
    model = Patient(Scripted(script), budget=budget, sleep=waits, jitter=lambda: 1.0)
    return await model.reply((), ())


def passing(retry_after: float | None = None) -> ModelError:
    return ModelError("Busy.", retry_after=retry_after)


async def test_each_wait_is_twice_the_last_up_to_a_minute() -> None:
    waits = Waits()
    assert await ask(waits, *[passing() for _ in range(8)], REPLY) == REPLY
    assert waits.seconds == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_the_provider_says_how_long_to_wait_and_is_never_asked_earlier() -> None:
    waits = Waits()
    assert await ask(waits, passing(retry_after=20), REPLY) == REPLY
    assert waits.seconds == [21]


async def test_a_budget_that_is_spent_ends_it_and_says_how_often_it_was_tried() -> None:
    waits = Waits()
    with pytest.raises(ModelError, match=r"^Busy\. It was asked 4 times in 7 s\.$"):
        await ask(waits, *[passing() for _ in range(9)], budget=10)
    assert waits.seconds == [1, 2, 4]


async def test_a_wait_beyond_the_budget_is_not_begun_and_its_length_is_told() -> None:
    waits = Waits()
    with pytest.raises(ModelError, match=r"^Busy\. It wants to be asked again in 3,600 s\.$"):
        await ask(waits, passing(retry_after=3600), REPLY)
    assert waits.seconds == []


async def test_what_will_not_pass_is_not_tried_again() -> None:
    waits = Waits()
    with pytest.raises(ModelRefused):
        await ask(waits, passing(), ModelRefused("Wrong key."), REPLY)
    assert waits.seconds == [1]


async def test_the_time_that_the_last_try_gets_is_told_in_tenths(caplog: pytest.LogCaptureFixture) -> None:
    await ask(Waits(), passing(retry_after=0.0422), TimeoutError(), REPLY)
    told = [getattr(record, "error", "") for record in caplog.records]
    assert told == ["Busy.", "The model scripted gave no reply within 599 s."]
