"""Daily limits: each one is reported once, and rejected jobs do not count."""

import pytest

from patchwright.demo.github import Issue
from patchwright.demo.recorded_model import RecordedTurn
from tests.end_to_end.conftest import CODE, DONE
from tests.end_to_end.server_scenario import issue_title, open_server_scenario, timeline

pytestmark = [pytest.mark.redis, pytest.mark.slow]

DEAR = {"prompt_tokens": 1_000_000, "completion_tokens": 1, "total_tokens": 1_000_001}
"""One dollar per reply."""
NOTHING_DONE = (RecordedTurn("Done.", DONE, usage=DEAR),)
DAY = "Try again after midnight UTC, or ask the operator to raise the limit."


async def test_each_daily_limit_is_reported_and_rejected_jobs_do_not_count() -> None:
    limits = {"runs_per_day": 2, "usd_per_day": 2.5}
    prices = '{"openai/scripted": {"input": 1, "output": 1}}'
    async with open_server_scenario(model_prices=prices, **limits) as server:
        issues = {
            name: server.issue(name, files={"calc.py": CODE}) for name in ("one", "two", "three", "four")
        }
        for name in issues:
            server.model.scripts[issue_title(name)] = NOTHING_DONE
        others = [
            server.fake_github.create_issue(
                issues["one"].repo, title=issue_title("one"), body="Again.", by="reporter"
            )
            for _ in "ab"
        ]

        async def asks(issue: Issue, login: str) -> None:
            server.fake_github.set_role(issue.repo, login, "write")
            await server.fake_github.add_label(issue, "fix-me", by=login)
            await server.wait_until_idle()

        async with server.serve():
            for _ in range(3):
                await server.fake_github.add_comment(issues["one"], "@agent fix it", by="outsider")
            await server.wait_until_idle()
            for name in ("one", "two", "three"):
                await asks(issues[name], "maintainer")
            for other, login in zip(others, ("colleague", "newcomer"), strict=True):
                await asks(other, login)
            await asks(issues["four"], "newcomer")
            timelines = [timeline(issue) for issue in (*issues.values(), *others)]
            await server.redeliver_all()
        async with server.serve():
            await server.redeliver_all()
        assert [timeline(issue) for issue in (*issues.values(), *others)] == timelines
        opened, second, third, fourth, again, once_more = (
            [line.partition(": ")[2] for line in one] for one in timelines
        )
        assert "maintainer labels it fix-me" in timelines[0][-2] and opened[-1].startswith(
            "**No pull request:**"
        )
        assert second[-1].startswith("**No pull request:**") and again[-1].startswith("**No pull request:**")
        assert third[-1] == (f"You reached your daily limit of 2 runs (setting `runs_per_day`). {DAY}")
        assert once_more[-1] == (
            f"This repository reached its daily limit of 2 runs (setting `runs_per_day`). {DAY}"
        )
        assert fourth[-1] == (f"The daily budget of $2.50 is used up (setting `usd_per_day`). {DAY}")
