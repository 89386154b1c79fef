import pytest

from durations import parse


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45), ("1h 30m", 5400), ("1h30m", 5400), ("2d", 172_800), ("2.5s", 2.5), (" 1m 1s ", 61)],
)
def test_a_duration_is_read(text, seconds):
    assert parse(text) == seconds


@pytest.mark.parametrize("text", ["", "fast", "10", "1h -3m", "5 parsecs"])
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError):
        parse(text)
