"""Creates and updates one check run per job and commit, if the token has the permission."""

from patchwright.bot.github.check_reader import OWN_CHECK_NAME
from patchwright.bot.github.comments import truncate_body
from patchwright.bot.github.rest import RestClient, repo_path
from patchwright.bot.github.reviews import CreateOnce
from patchwright.bot.github.schemas import GitHubResponse
from patchwright.bot.github.valid_entries import ValidEntries
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import Forbidden, NotFound
from patchwright.resolver.forge_writes import CheckRunReport

MAX_TITLE = 255  # characters
MAX_SUMMARY = 65_535  # characters; GitHub returns 422 for longer ones


class _Output(GitHubResponse):
    title: str | None = None
    summary: str | None = None


class CheckRunResponse(GitHubResponse):
    """A check run that Patchwright created."""

    id: int
    html_url: str | None = None
    external_id: str | None = None
    conclusion: str | None = None
    output: _Output = _Output()


class _CheckRunList(GitHubResponse):
    check_runs: ValidEntries[CheckRunResponse]


class CheckRuns:
    """Creates and updates check runs."""

    def __init__(self, rest: RestClient, create_once: CreateOnce[CheckRunResponse]) -> None:
        self._rest = rest
        self._create_once = create_once

    async def upsert(self, repo: Repo, report: CheckRunReport) -> str:
        """Creates the check run for a report, or updates the existing one: see `Forge.create_check_run`.

        Source: docs.github.com/rest/checks/runs
        """
        if await self._rest.is_write_denied(repo, "checks"):
            return ""
        path = (*repo_path(repo), "check-runs")
        summary = truncate_body(report.summary, MAX_SUMMARY, github_limit=MAX_SUMMARY)
        output = {"title": report.title[:MAX_TITLE], "summary": summary}
        fields: dict[str, object] = {"status": "completed", "conclusion": report.conclusion, "output": output}
        if report.details_url:
            fields["details_url"] = report.details_url

        async def find() -> CheckRunResponse | None:
            list_path = (*repo_path(repo), "commits", report.commit, "check-runs")
            query = {"check_name": OWN_CHECK_NAME, "filter": "all", "per_page": "100"}
            response = await self._rest.get(_CheckRunList, repo, *list_path, **query)
            return next((one for one in response.check_runs if one.external_id == report.job), None)

        async def create() -> CheckRunResponse:
            identity: dict[str, object] = {
                "name": OWN_CHECK_NAME,
                "head_sha": report.commit,
                "external_id": report.job,
            }
            return await self._rest.post(CheckRunResponse, repo, *path, body=identity | fields)

        try:
            check_run = await find() or await self._create_once(create, find)
            if (check_run.conclusion, check_run.output.title, check_run.output.summary) != (
                report.conclusion, output["title"], output["summary"],
            ):  # fmt: skip
                check_run = await self._rest.patch(
                    CheckRunResponse, repo, *path, str(check_run.id), body=fields
                )
        except (Forbidden, NotFound):  # a personal access token cannot write check runs
            return ""
        return check_run.html_url or OWN_CHECK_NAME
