"""Our check runs on GitHub: one for each job on a commit, where our token may make any."""

from bot.ci.reading import OWN
from bot.github.answers import Answer
from bot.github.comments import clipped
from bot.github.rest import Rest, path_of
from bot.github.reviews import Made
from resolver.delivery.finding import Finding
from resolver.domain import Repo
from resolver.errors import Forbidden, NotFound

MAX_TITLE = 255  # characters
MAX_SUMMARY = 65_535  # characters; GitHub answers 422 to a longer one


class _Output(Answer):
    title: str | None = None
    summary: str | None = None


class CheckRunAnswer(Answer):
    """A check run of ours."""

    id: int
    html_url: str | None = None
    external_id: str | None = None
    conclusion: str | None = None
    output: _Output = _Output()


class _Listed(Answer):
    check_runs: tuple[CheckRunAnswer, ...]


class Checks:
    """Says what we found of commits in the name of whoever `rest` speaks for."""

    def __init__(self, rest: Rest, made: Made[CheckRunAnswer]) -> None:
        self._rest = rest
        self._made = made

    async def show(self, repo: Repo, finding: Finding) -> str:
        """See Forge. Source: docs.github.com/rest/checks/runs"""
        if await self._rest.lacks(repo, "checks"):
            return ""
        place = (*path_of(repo), "check-runs")
        summary = clipped(finding.summary, MAX_SUMMARY, most=MAX_SUMMARY)
        output = {"title": finding.title[:MAX_TITLE], "summary": summary}
        said: dict[str, object] = {"status": "completed", "conclusion": finding.conclusion, "output": output}
        if finding.page:
            said["details_url"] = finding.page

        async def find() -> CheckRunAnswer | None:
            asked = (*path_of(repo), "commits", finding.commit, "check-runs")
            query = {"check_name": OWN, "filter": "all", "per_page": "100"}
            found = await self._rest.get(_Listed, repo, *asked, **query)
            return next((one for one in found.check_runs if one.external_id == finding.job), None)

        async def make() -> CheckRunAnswer:
            which: dict[str, object] = {"name": OWN, "head_sha": finding.commit, "external_id": finding.job}
            return await self._rest.post(CheckRunAnswer, repo, *place, body=which | said)

        try:
            known = await find() or await self._made(make, find)
            if (known.conclusion, known.output.title, known.output.summary) != (
                finding.conclusion, output["title"], output["summary"],
            ):  # fmt: skip
                known = await self._rest.patch(CheckRunAnswer, repo, *place, str(known.id), body=said)
        except (Forbidden, NotFound):  # as a personal token is told
            return ""
        return known.html_url or OWN
