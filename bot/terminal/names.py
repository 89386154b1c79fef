"""What people at the command line call things, and what we call a run of theirs."""

import re
import secrets
from datetime import UTC, datetime
from urllib.parse import urlsplit

from resolver.domain import JobId, Repo
from resolver.errors import UsageError


def issue_url(url: str, server: str) -> tuple[Repo, int]:
    """Repository and number in the URL of an issue or a pull request. Raises UsageError for anything else."""
    expected = urlsplit(server.rstrip("/"))
    given = urlsplit(url if "://" in url else f"https://{url}")
    wanted = r"/([^/]+)/([^/]+)/(?:issues|pull)/([1-9]\d{0,9})/?"
    match = re.fullmatch(wanted, given.path.removeprefix(expected.path))
    if given.netloc.lower() != expected.netloc.lower() or match is None:
        shown = given._replace(netloc=given.netloc.rpartition("@")[2]).geturl()  # never with a password
        raise UsageError(
            f"{shown} is not the URL of an issue: it should look like {server}/OWNER/REPOSITORY/issues/7"
            + ("" if given.netloc == expected.netloc else " (another server is named by GITHUB_SERVER_URL)")
        )
    try:
        return Repo(owner=match[1], name=match[2]), int(match[3])
    except ValueError as exc:
        raise UsageError(f"{url} does not name a repository of {server}") from exc


def run_name(about: str) -> JobId:
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return JobId(f"{safe(about)[:80]}-{now}-{secrets.token_hex(2)}")


def safe(name: str) -> str:
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in name)
    return kept.strip(".-") or "repository"
