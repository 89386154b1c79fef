"""The statistics of a report, compared with published values."""

import pytest

from patchwright.evaluation.intervals import mcnemar_p_value, pass_at_k, wilson_interval


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [(12, 20, 0.3866, 0.7812), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (0, 0, 0.0, 1.0)],
)
def test_the_wilson_interval_is_as_published(successes: int, total: int, low: float, high: float) -> None:
    assert wilson_interval(successes, total) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


@pytest.mark.parametrize(
    ("attempts", "successes", "k", "expected"),
    [(1, 1, 1, 1.0), (4, 1, 1, 0.25), (4, 1, 2, 0.5), (3, 2, 2, 1.0)],
)
def test_pass_at_k_is_unbiased(attempts: int, successes: int, k: int, expected: float) -> None:
    assert pass_at_k(attempts, successes, k) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(0, 0, 1.0), (5, 0, 0.0625), (6, 0, 0.03125), (3, 3, 1.0), (1, 9, 0.02148)],
)
def test_mcnemars_test_is_exact(first: int, second: int, expected: float) -> None:
    assert mcnemar_p_value(first, second) == pytest.approx(expected, abs=1e-4)
    assert mcnemar_p_value(second, first) == mcnemar_p_value(first, second)
