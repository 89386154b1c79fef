"""The statistics of a report: confidence intervals, pass@k, and a test for paired results."""

import math
from statistics import NormalDist

CONFIDENCE = 0.95


def wilson_interval(successes: int, total: int) -> tuple[float, float]:
    """Returns the Wilson score interval of a share. Without observations, it is the whole range.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference" (1927)
    """
    if not total:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share = successes / total
    center = (share + z * z / (2 * total)) / (1 + z * z / total)
    margin = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, center - margin), min(1.0, center + margin)


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """Returns the probability that at least one of `k` attempts succeeds, without bias.

    Source: Chen and others, "Evaluating Large Language Models Trained on Code" (2021)
    """
    if attempts - successes < k:
        return 1.0
    return 1.0 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def mcnemar_p_value(only_first: int, only_second: int) -> float:
    """Returns the two-sided p-value of McNemar's exact test for the instances that only one of two solved."""
    total = only_first + only_second
    tail = sum(math.comb(total, count) for count in range(min(only_first, only_second) + 1))
    return min(1.0, float(2 * tail / 2**total))
