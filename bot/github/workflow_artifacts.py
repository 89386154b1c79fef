"""Downloads artifacts that this repository's own workflows uploaded from its default branch.

A workflow of a pull request from a fork can upload an artifact of any name to this repository. Such an artifact is
never used: GitHub names the repository and the branch from which the workflow of each artifact came.
"""

from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from patchwright.bot.github.attachments import download
from patchwright.bot.github.rest import PER_PAGE, RestClient, repo_path
from patchwright.bot.github.schemas import GitHubResponse, RepositoryResponse
from patchwright.bot.github.tls import create_ssl_context
from patchwright.bot.github.valid_entries import ValidEntries
from patchwright.resolver.domain import Repo


class _WorkflowRun(GitHubResponse):
    repository_id: int
    head_repository_id: int
    head_branch: str | None = None


class _Artifact(GitHubResponse):
    id: int
    name: str
    expired: bool
    created_at: datetime
    workflow_run: _WorkflowRun | None = None


class _Artifacts(GitHubResponse):
    artifacts: ValidEntries[_Artifact]


async def download_latest_artifact(
    rest: RestClient, api_url: str, ca_bundle: Path | None, repo: Repo, name: str
) -> bytes | None:
    """Returns the zip file of the latest artifact with this name, or None if there is none. Raises ForgeError, for
    example Forbidden if the token may not read artifacts.

    Source: docs.github.com/rest/actions/artifacts
    """
    repository = await rest.get(RepositoryResponse, repo, *repo_path(repo))
    path = (*repo_path(repo), "actions", "artifacts")
    listed = await rest.get(_Artifacts, repo, *path, name=name, per_page=str(PER_PAGE))
    own = [
        each
        for each in listed.artifacts
        if each.name == name
        and not each.expired
        and each.workflow_run is not None
        and each.workflow_run.repository_id == each.workflow_run.head_repository_id == repository.id
        and each.workflow_run.head_branch == repository.default_branch
    ]
    if not own:
        return None
    latest = max(own, key=lambda each: each.created_at)
    credentials = await rest.get_credentials(repo)
    schemes = ("https", urlsplit(api_url).scheme)
    return await download(
        f"{api_url}/repos/{repo}/actions/artifacts/{latest.id}/zip",
        create_ssl_context(ca_bundle),
        # GitHub's API redirects to a signed URL of its storage, whose hosts it does not promise.
        may_redirect_to=lambda target: urlsplit(target).scheme in schemes,
        token_origin=api_url,
        token=credentials.token,
    )
