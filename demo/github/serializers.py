"""Converts the fake server's objects to the JSON of GitHub's REST API and webhooks."""

import base64
import hashlib
from dataclasses import dataclass
from urllib.parse import quote

from patchwright.demo.github.app_models import GitHubApp
from patchwright.demo.github.state import (
    Comment,
    FakePullRequest,
    Installation,
    Issue,
    Label,
    Reaction,
    Repository,
    Role,
    Token,
    User,
)

Json = dict[str, object]

USER_LINKS = {
    "followers_url": "/followers", "following_url": "/following{/other_user}",
    "gists_url": "/gists{/gist_id}",
    "starred_url": "/starred{/owner}{/repo}", "subscriptions_url": "/subscriptions",
    "organizations_url": "/orgs",
    "repos_url": "/repos", "events_url": "/events{/privacy}", "received_events_url": "/received_events",
}  # fmt: skip
REPOSITORY_LINKS = {
    "archive_url": "/{archive_format}{/ref}", "assignees_url": "/assignees{/user}",
    "blobs_url": "/git/blobs{/sha}",
    "branches_url": "/branches{/branch}", "collaborators_url": "/collaborators{/collaborator}",
    "comments_url": "/comments{/number}", "commits_url": "/commits{/sha}",
    "compare_url": "/compare/{base}...{head}",
    "contents_url": "/contents/{+path}", "contributors_url": "/contributors",
    "deployments_url": "/deployments",
    "downloads_url": "/downloads", "events_url": "/events", "forks_url": "/forks",
    "git_commits_url": "/git/commits{/sha}", "git_refs_url": "/git/refs{/sha}",
    "git_tags_url": "/git/tags{/sha}",
    "hooks_url": "/hooks", "issue_comment_url": "/issues/comments{/number}",
    "issue_events_url": "/issues/events{/number}", "issues_url": "/issues{/number}",
    "keys_url": "/keys{/key_id}",
    "labels_url": "/labels{/name}", "languages_url": "/languages", "merges_url": "/merges",
    "milestones_url": "/milestones{/number}", "notifications_url": "/notifications{?since,all,participating}",
    "pulls_url": "/pulls{/number}", "releases_url": "/releases{/id}", "stargazers_url": "/stargazers",
    "statuses_url": "/statuses/{sha}", "subscribers_url": "/subscribers", "subscription_url": "/subscription",
    "tags_url": "/tags", "teams_url": "/teams", "trees_url": "/git/trees{/sha}",
}  # fmt: skip
EVENTS = ["issues", "issue_comment", "pull_request_review", "pull_request_review_comment"]
REACTIONS = ("+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes")


def node_id(kind: str, number: int) -> str:
    return base64.b64encode(f"{kind}:{number}".encode()).decode()


def legacy_permission(role: Role) -> str:
    """Converts a role to the old `permission` field, which has four values. The field `role_name` has six."""
    return {"maintain": "write", "triage": "read"}.get(role, role)


@dataclass(frozen=True)
class Serializer:
    """Converts objects of the fake server to JSON. Each link in the JSON begins with `api_url` or `web_url`."""

    api_url: str
    web_url: str

    def user(self, user: User) -> Json:
        url = f"{self.api_url}/users/{quote(user.login)}"
        return {
            "login": user.login, "id": user.id, "node_id": node_id("User", user.id),
            "avatar_url": f"{self.web_url}/avatars/{user.id}",
            "gravatar_id": "", "url": url, "html_url": f"{self.web_url}/{quote(user.login)}", "type": user.kind,
            "site_admin": False, "user_view_type": "public",
            **{name: url + path for name, path in USER_LINKS.items()},
        }  # fmt: skip

    def profile(self, user: User) -> Json:
        return {
            **self.user(user), "name": None, "company": None, "blog": "", "location": None, "email": None,
            "hireable": None, "bio": None, "public_repos": 0, "public_gists": 0, "followers": 0,
            "following": 0,
            "created_at": "2020-01-01T00:00:00Z", "updated_at": "2020-01-01T00:00:00Z",
        }  # fmt: skip

    def repository(self, repo: Repository) -> Json:
        url, page = self.repository_url(repo), self._repository_page(repo)
        issues = sum(thread.state == "open" for thread in repo.threads.values())
        return {
            "id": repo.id, "node_id": node_id("Repository", repo.id), "name": repo.name,
            "full_name": repo.full_name,
            "private": repo.private, "visibility": "private" if repo.private else "public",
            "owner": self.user(repo.owner), "html_url": page, "description": None,
            "fork": repo.parent is not None, "url": url,
            **{name: url + path for name, path in REPOSITORY_LINKS.items()},
            "clone_url": f"{page}.git", "git_url": f"{page}.git",
            "ssh_url": f"git@forge.invalid:{repo.full_name}.git",
            "svn_url": page, "homepage": None, "language": None, "license": None, "mirror_url": None,
            "topics": [],
            "default_branch": repo.default_branch, "forks": 0, "forks_count": 0, "stargazers_count": 0,
            "watchers": 0,
            "watchers_count": 0, "network_count": 0, "subscribers_count": 0, "size": 0, "open_issues": issues,
            "open_issues_count": issues, "has_issues": True, "has_projects": False, "has_downloads": False,
            "has_wiki": False, "has_pages": False, "has_discussions": False, "archived": repo.archived,
            "disabled": False,
            "is_template": False, "web_commit_signoff_required": False, "allow_forking": True,
            "pushed_at": repo.created, "created_at": repo.created, "updated_at": repo.created,
        }  # fmt: skip

    def label(self, repo: Repository, label: Label) -> Json:
        return {
            "id": label.id, "node_id": node_id("Label", label.id),
            "url": f"{self.repository_url(repo)}/labels/{quote(label.name, safe='')}",
            "name": label.name, "color": label.color, "default": False, "description": label.description,
        }  # fmt: skip

    def issue(self, issue: Issue) -> Json:
        url, page = f"{self.repository_url(issue.repo)}/issues/{issue.number}", self.thread_url(issue)
        kind = "PullRequest" if isinstance(issue, FakePullRequest) else "Issue"
        shape: Json = {
            "id": issue.id, "node_id": node_id(kind, issue.id), "number": issue.number, "title": issue.title,
            "body": issue.body, "user": self.author(issue.author), "state": issue.state, "state_reason": None,
            "labels": [self.label(issue.repo, label) for label in issue.labels], "locked": issue.locked,
            "active_lock_reason": None, "assignee": None, "assignees": [], "milestone": None,
            "comments": len(issue.comments), "created_at": issue.created, "updated_at": issue.updated,
            "closed_at": issue.closed, "author_association": self.association(issue.repo, issue.author),
            "performed_via_github_app": None, "reactions": self.reactions(url, issue.reactions), "url": url,
            "repository_url": self.repository_url(issue.repo), "labels_url": f"{url}/labels{{/name}}",
            "comments_url": f"{url}/comments", "events_url": f"{url}/events",
            "timeline_url": f"{url}/timeline",
            "html_url": page,
        }  # fmt: skip
        if isinstance(issue, FakePullRequest):
            pull = f"{self.repository_url(issue.repo)}/pulls/{issue.number}"
            shape["pull_request"] = {
                "url": pull, "html_url": page, "diff_url": f"{page}.diff", "patch_url": f"{page}.patch",
                "merged_at": issue.merged,
            }  # fmt: skip
            shape["draft"] = issue.draft
        return shape

    def comment(self, thread: Issue, comment: Comment) -> Json:
        url = f"{self.repository_url(thread.repo)}/issues/comments/{comment.id}"
        return {
            "id": comment.id, "node_id": node_id("IssueComment", comment.id), "url": url,
            "html_url": f"{self.thread_url(thread)}#issuecomment-{comment.id}",
            "issue_url": f"{self.repository_url(thread.repo)}/issues/{thread.number}",
            "user": self.author(comment.author),
            "created_at": comment.created, "updated_at": comment.updated, "body": comment.body,
            "author_association": self.association(thread.repo, comment.author),
            "performed_via_github_app": None, "reactions": self.reactions(url, comment.reactions),
        }  # fmt: skip

    def pull_summary(self, pull: FakePullRequest) -> Json:
        """Returns a pull request as it appears in lists."""
        repo, page = pull.repo, self.thread_url(pull)
        url, issue = (
            f"{self.repository_url(repo)}/pulls/{pull.number}",
            f"{self.repository_url(repo)}/issues/{pull.number}",
        )
        head, base = pull.head, pull.base
        links = {
            "self": url, "html": page, "issue": issue, "comments": f"{issue}/comments",
            "review_comments": f"{url}/comments",
            "review_comment": f"{self.repository_url(repo)}/pulls/comments{{/number}}",
            "commits": f"{url}/commits", "statuses": f"{self.repository_url(repo)}/statuses/{head.sha}",
        }  # fmt: skip
        return {
            "id": pull.id, "node_id": node_id("PullRequest", pull.id), "number": pull.number,
            "title": pull.title,
            "body": pull.body, "user": self.user(pull.author), "state": pull.state, "draft": pull.draft,
            "locked": pull.locked, "active_lock_reason": None,
            "labels": [self.label(repo, label) | {"description": ""} for label in pull.labels],
            "assignee": None, "assignees": [],
            "requested_reviewers": [self.user(user) for user in pull.requested_reviewers], "requested_teams": [],
            "milestone": None,
            "created_at": pull.created, "updated_at": pull.updated, "closed_at": pull.closed,
            "merged_at": pull.merged,
            "merge_commit_sha": None, "author_association": self.association(repo, pull.author),
            "auto_merge": None,
            "head": self._branch_end(pull.head_repo, head.ref, head.sha),
            "base": self._branch_end(repo, base.ref, base.sha),
            "url": url, "html_url": page, "issue_url": issue, "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch",
            "comments_url": links["comments"], "commits_url": links["commits"],
            "statuses_url": links["statuses"],
            "review_comments_url": links["review_comments"], "review_comment_url": links["review_comment"],
            "_links": {name: {"href": link} for name, link in links.items()},
        }  # fmt: skip

    def pull(self, pull: FakePullRequest) -> Json:
        head, base = pull.head.sha, pull.base.sha
        lines = [line.split("\t") for line in pull.repo.bare.diff(base, head, "--numstat").splitlines()]
        return {
            **self.pull_summary(pull), "merged": pull.merged is not None, "mergeable": True, "mergeable_state": "clean",
            "merged_by": None,
            "rebaseable": None, "comments": len(pull.comments),
            "review_comments": sum(len(thread.comments) for thread in pull.review_threads),
            "maintainer_can_modify": pull.maintainer_can_modify,
            "commits": pull.repo.bare.count_commits(base, head), "changed_files": len(lines),
            "additions": sum(int(added) for added, _, _ in lines if added != "-"),
            "deletions": sum(int(removed) for _, removed, _ in lines if removed != "-"),
        }  # fmt: skip

    def commit(self, repo: Repository, sha: str) -> Json:
        form = "%T%n%P%n%an%n%ae%n%aI%n%cn%n%ce%n%cI%n%B"
        tree, parents, *people, message = (
            repo.bare.git("show", "-s", f"--format={form}", sha).decode().split("\n", 8)
        )
        author, committer = people[:3], people[3:]
        url = f"{self.repository_url(repo)}/commits/{sha}"
        git_url = f"{self.repository_url(repo)}/git/commits/{sha}"
        return {
            "sha": sha, "node_id": f"C_{sha}", "url": url, "html_url": f"{self._repository_page(repo)}/commit/{sha}",
            "comments_url": f"{url}/comments", "author": None, "committer": None,
            "commit": {
                "author": dict(zip(("name", "email", "date"), author, strict=True)),
                "committer": dict(zip(("name", "email", "date"), committer, strict=True)),
                "message": message.rstrip("\n"), "comment_count": 0, "url": git_url,
                "tree": {"sha": tree, "url": f"{self.repository_url(repo)}/git/trees/{tree}"},
            },
            "parents": [{"sha": one, "url": f"{self.repository_url(repo)}/commits/{one}"} for one in parents.split()],
        }  # fmt: skip

    def branch(self, repo: Repository, name: str, sha: str) -> Json:
        url = f"{self.repository_url(repo)}/branches/{name}"
        return {
            "name": name, "commit": self.commit(repo, sha), "protected": False,
            "protection": {"enabled": False},
            "protection_url": f"{url}/protection",
            "_links": {"self": url, "html": f"{self._repository_page(repo)}/tree/{name}"},
        }  # fmt: skip

    def ref(self, repo: Repository, name: str, sha: str) -> Json:
        return {
            "ref": name, "node_id": f"REF_{repo.id}_{name}", "url": f"{self.repository_url(repo)}/git/{name}",
            "object": {"type": "commit", "sha": sha, "url": f"{self.repository_url(repo)}/git/commits/{sha}"},
        }  # fmt: skip

    def file(self, repo: Repository, path: str, content: bytes) -> Json:
        sha = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        url, git_url = (
            f"{self.repository_url(repo)}/contents/{quote(path)}",
            f"{self.repository_url(repo)}/git/blobs/{sha}",
        )
        page = f"{self._repository_page(repo)}/blob/{repo.default_branch}/{quote(path)}"
        return {
            "type": "file", "name": path.rsplit("/", 1)[-1], "path": path, "sha": sha, "size": len(content),
            "encoding": "base64", "content": base64.encodebytes(content).decode(), "url": url,
            "html_url": page,
            "git_url": git_url, "download_url": None, "_links": {"self": url, "git": git_url, "html": page},
        }  # fmt: skip

    def reaction(self, reaction: Reaction) -> Json:
        return {
            "id": reaction.id, "node_id": node_id("Reaction", reaction.id), "user": self.user(reaction.user),
            "content": reaction.content, "created_at": reaction.created,
        }  # fmt: skip

    def app(self, app: GitHubApp) -> Json:
        return {
            "id": app.id, "slug": app.slug, "node_id": node_id("App", app.id), "owner": self.user(app.bot),
            "name": app.slug,
            "description": None, "external_url": self.web_url, "html_url": f"{self.web_url}/apps/{app.slug}",
            "created_at": app.created, "updated_at": app.created, "permissions": app.permissions,
            "events": EVENTS if app.events is None else app.events,
        }  # fmt: skip

    def installation(self, installation: Installation) -> Json:
        url = f"{self.api_url}/app/installations/{installation.id}"
        return {
            "id": installation.id, "app_id": installation.app.id, "app_slug": installation.app.slug,
            "account": self.user(installation.owner), "target_id": installation.owner.id,
            "target_type": installation.owner.kind, "repository_selection": "selected",
            "access_tokens_url": f"{url}/access_tokens",
            "repositories_url": f"{self.api_url}/installation/repositories",
            "html_url": f"{self.web_url}/settings/installations/{installation.id}",
            "permissions": installation.app.permissions, "events": EVENTS,
            "created_at": installation.created, "updated_at": installation.created, "single_file_name": None,
            "suspended_by": None, "suspended_at": None,
        }  # fmt: skip

    def token(self, token: Token) -> Json:
        assert token.expires is not None and token.permissions is not None
        return {
            "token": token.value, "expires_at": token.expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "permissions": dict(token.permissions), "repository_selection": "selected",
        }  # fmt: skip

    def thread_url(self, thread: Issue) -> str:
        """Returns the URL of an issue's or pull request's web page."""
        kind = "pull" if isinstance(thread, FakePullRequest) else "issues"
        return f"{self._repository_page(thread.repo)}/{kind}/{thread.number}"

    def repository_url(self, repo: Repository) -> str:
        """Returns the API URL of a repository."""
        return f"{self.api_url}/repos/{repo.full_name}"

    def _repository_page(self, repo: Repository) -> str:
        return f"{self.web_url}/{repo.full_name}"

    def _branch_end(self, repo: Repository, ref: str, sha: str) -> Json:
        return {
            "label": f"{repo.owner.login}:{ref}", "ref": ref, "sha": sha, "user": self.user(repo.owner),
            "repo": self.repository(repo),
        }  # fmt: skip

    def author(self, user: User) -> Json | None:
        return None if user.is_deleted else self.user(user)

    def association(self, repo: Repository, user: User) -> str:
        if user is repo.owner:
            return "OWNER"
        return "COLLABORATOR" if user.id in repo.roles else "NONE"

    def reactions(self, url: str, reactions: list[Reaction]) -> Json:
        counts = {name: sum(reaction.content == name for reaction in reactions) for name in REACTIONS}
        return {"url": f"{url}/reactions", "total_count": len(reactions), **counts}
