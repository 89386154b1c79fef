import pytest

from durations import parse, show


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (45, "45s"), (60, "1m"), (3600, "1h"), (5400, "1h 30m"), (90_061, "1d 1h 1m 1s")],
)
def test_whole_seconds_are_written(seconds, text):
    assert show(seconds) == text


def test_fractions_are_written_to_the_nearest_second():
    assert show(1.6) == "2s"
    assert show(61.2) == "1m 1s"


def test_what_was_written_can_be_read_again():
    for seconds in (1, 59, 60, 3599, 86_399, 100_000):
        assert parse(show(seconds)) == seconds


def test_a_negative_duration_is_refused():
    with pytest.raises(ValueError):
        show(-1)
