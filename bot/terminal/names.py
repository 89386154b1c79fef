"""What people at the command line call things, and what we call a run of theirs."""

import re
import secrets
from datetime import UTC, datetime
from urllib.parse import urlsplit

from resolver.domain import JobId, Repo
from resolver.errors import UsageError

PLACE = re.compile(r"/([^/]+)/([^/]+)/(?:issues|pull)/([1-9]\d{0,9})/?")
SHORT = re.compile(r"([^/]+)/([^/#]+)#([1-9]\d{0,9})")


def issue_named(typed: str, server: str) -> tuple[Repo, int]:
    """Repository and number that a URL of an issue or a pull request, or OWNER/REPO#7, names.

    Raises UsageError for anything else; it says what was typed, but never a password in it.
    """
    try:
        expected, given = urlsplit(server.rstrip("/")), urlsplit(typed if "://" in typed else f"//{typed}")
        here = given.netloc.lower() == expected.netloc.lower()
        named = PLACE.fullmatch(given.path.removeprefix(expected.path)) if here else SHORT.fullmatch(typed)
        if named is not None:
            return Repo(owner=named[1], name=named[2]), int(named[3])
        elsewhere = "://" in typed and not here
        typed = given._replace(netloc=given.netloc.rpartition("@")[2]).geturl().removeprefix("//")
    except ValueError:  # no URL that can be read, or no name that a repository can have
        elsewhere, typed = False, typed.rpartition("@")[2]
    raise UsageError(
        f"{typed!r} is not an issue: give its URL, such as {server.rstrip('/')}/OWNER/REPO/issues/7, or OWNER/REPO#7"
        + (" (another server is named by GITHUB_SERVER_URL)" if elsewhere else "")
    )


def run_name(about: str) -> JobId:
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return JobId(f"{safe(about)[:80]}-{now}-{secrets.token_hex(2)}")


def safe(name: str) -> str:
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in name)
    return kept.strip(".-") or "repository"
