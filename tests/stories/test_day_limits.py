"""What may be asked for in a day, as conversations: each limit is said once, and what was refused counts for none."""

import pytest

from demo.model import Turn
from demo.world import Issue
from tests.stories.conftest import CODE, DONE
from tests.stories.town import a_town, conversation, title_of

pytestmark = [pytest.mark.redis, pytest.mark.slow]

DEAR = {"prompt_tokens": 1_000_000, "completion_tokens": 1, "total_tokens": 1_000_001}
"""A dollar for each reply."""
NOTHING_DONE = (Turn("Done.", DONE, usage=DEAR),)
DAY = "Ask again after midnight (UTC), or ask whoever runs me for more."


async def test_each_limit_of_a_day_is_said_when_it_is_reached_and_what_was_refused_counts_for_none() -> None:
    limits = {"user_runs_per_day": 2, "repository_runs_per_day": 2, "usd_per_day": 2.5}
    prices = '{"openai/scripted": {"input": 1, "output": 1}}'
    async with a_town(model_prices=prices, **limits) as town:
        issues = {name: town.issue(name, files={"calc.py": CODE}) for name in ("one", "two", "three", "four")}
        for name in issues:
            town.model.scripts[title_of(name)] = NOTHING_DONE
        others = [
            town.world.issue(issues["one"].repo, title=title_of("one"), body="Again.", by="reporter")
            for _ in "ab"
        ]

        async def asks(issue: Issue, login: str) -> None:
            town.world.permit(issue.repo, login, "write")
            await town.world.label(issue, "fix-me", by=login)
            await town.quiet()

        async with town.serving():
            for _ in range(3):
                await town.world.comment(issues["one"], "@agent mend it", by="outsider")
            await town.quiet()
            for name in ("one", "two", "three"):
                await asks(issues[name], "maintainer")
            for other, login in zip(others, ("colleague", "newcomer"), strict=True):
                await asks(other, login)
            await asks(issues["four"], "newcomer")
            seen = [conversation(issue) for issue in (*issues.values(), *others)]
            await town.again()
        async with town.serving():
            await town.again()
        assert [conversation(issue) for issue in (*issues.values(), *others)] == seen
        opened, second, third, fourth, again, once_more = (
            [line.partition(": ")[2] for line in one] for one in seen
        )
        assert "maintainer labels it fix-me" in seen[0][-2] and opened[-1].startswith(
            "I opened no pull request"
        )
        assert second[-1].startswith("I opened no pull request") and again[-1].startswith(
            "I opened no pull request"
        )
        assert third[-1] == (
            "I did not start on this: you have asked for 2 runs today, which is the limit (setting "
            f"`user_runs_per_day`). {DAY}"
        )
        assert once_more[-1] == (
            "I did not start on this: 2 runs were asked for in this repository today, which is the limit (setting "
            f"`repository_runs_per_day`). {DAY}"
        )
        assert fourth[-1] == (
            f"I did not start on this: the $2.50 that I may spend in a day are spent (setting `usd_per_day`). {DAY}"
        )
