"""Retries: how long, how often, and when not."""

import pytest

from patchwright.resolver.errors import (
    ModelAccessDenied,
    ModelConnectionFailed,
    ModelError,
    ModelUnreachable,
    NotAModel,
)
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.model import AssistantMessage, Reply
from patchwright.resolver.llm.retry import RetryingModel
from tests.resolver.scripted_model import ScriptedModel, ScriptLine

REPLY = Reply(text="hello", tool_calls=(), usage=ReplyUsage(model="m"))


class FakeClock:
    """A clock that advances without waiting."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def ask(waits: FakeClock, *script: ScriptLine, budget: float = 600.0) -> Reply:
    model = RetryingModel(ScriptedModel(script), max_seconds=budget, sleep=waits, jitter=lambda: 1.0)
    return await model.reply((), ())


def busy(retry_after: float | None = None) -> ModelError:
    return ModelError("Busy.", retry_after=retry_after)


async def test_waits_double_up_to_a_minute() -> None:
    waits = FakeClock()
    assert await ask(waits, *[busy() for _ in range(8)], REPLY) == REPLY
    assert waits.seconds == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_the_providers_retry_after_is_respected() -> None:
    waits = FakeClock()
    assert await ask(waits, busy(retry_after=20), REPLY) == REPLY
    assert waits.seconds == [21]


async def test_retries_stop_at_the_time_limit_and_report_the_attempts() -> None:
    waits = FakeClock()
    with pytest.raises(ModelError, match=r"^Busy\. Tried 4 times in 7 s\.$"):
        await ask(waits, *[busy() for _ in range(9)], budget=10)
    assert waits.seconds == [1, 2, 4]


async def test_a_wait_beyond_the_time_limit_is_reported_instead() -> None:
    waits = FakeClock()
    with pytest.raises(ModelError, match=r"^Busy\. The provider asks for a wait of 3,600 s\.$"):
        await ask(waits, busy(retry_after=3600), REPLY)
    assert waits.seconds == []


async def test_a_permanent_failure_is_not_retried() -> None:
    waits = FakeClock()
    with pytest.raises(ModelAccessDenied):
        await ask(waits, busy(), ModelAccessDenied("Wrong key."), REPLY)
    assert waits.seconds == [1]


async def test_an_unreachable_endpoint_is_reported_within_seconds_before_the_first_reply() -> None:
    waits = FakeClock()
    model = RetryingModel(
        ScriptedModel(
            [*[ModelConnectionFailed("Refused.")] * 3, REPLY, *[ModelConnectionFailed("Lost.")] * 5, REPLY]
        ),
        sleep=waits,
        jitter=lambda: 1.0,
    )
    with pytest.raises(ModelUnreachable, match=r"^Refused\.$"):
        await model.reply((), ())
    assert waits.seconds == [1, 2]
    assert await model.reply((), ()) == REPLY
    assert await model.reply((), ()) == REPLY  # A connection that is lost later gets the usual time.
    assert waits.seconds[2:] == [1, 2, 4, 8, 16]


async def test_another_service_at_the_url_is_reported_at_once_before_the_first_reply() -> None:
    waits = FakeClock()
    model = RetryingModel(
        ScriptedModel([NotAModel("A web page."), REPLY, NotAModel("A web page."), REPLY]), sleep=waits
    )
    resumed = (AssistantMessage(text="Look."),)
    with pytest.raises(ModelUnreachable, match=r"^A web page\.$"):
        await model.reply(resumed, ())
    assert waits.seconds == []
    assert await model.reply((), ()) == REPLY
    assert await model.reply((), ()) == REPLY  # Later, it may be a proxy that fails for a moment.
    assert len(waits.seconds) == 1


async def test_a_retry_is_logged_with_the_time_limit_and_its_setting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = [ModelConnectionFailed("Refused."), busy(), REPLY]
    model = RetryingModel(ScriptedModel(script), setting="model_retry_timeout", sleep=FakeClock())
    await model.reply((), ())
    logged = [vars(record) for record in caplog.records]
    assert [each["limit"] for each in logged] == ["5 s", "300 s (PATCHWRIGHT_MODEL_RETRY_TIMEOUT)"]
    assert [each["elapsed"] > 0 for each in logged] == [False, True]


async def test_the_timeout_of_the_last_attempt_is_rounded(caplog: pytest.LogCaptureFixture) -> None:
    await ask(FakeClock(), busy(retry_after=0.0422), TimeoutError(), REPLY)
    texts = [getattr(record, "error", "") for record in caplog.records]
    assert texts == ["Busy.", "The model scripted did not reply within 599 s."]
