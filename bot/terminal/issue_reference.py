"""Parses references to issues, such as URLs and OWNER/REPO#7."""

import re
from urllib.parse import urlsplit

from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import UsageError

ISSUE_URL_PATH = re.compile(r"/([^/]+)/([^/]+)/(?:issues|pull)/([1-9]\d{0,9})/?")


SHORT_REFERENCE = re.compile(r"([^/]+)/([^/#]+)#([1-9]\d{0,9})")


def parse_issue_reference(reference: str, server_url: str) -> tuple[Repo, int]:
    """Returns the repository and the number in a reference. The reference is the URL of an issue or pull
    request, or OWNER/REPO#7.

    Raises UsageError for other texts. If the URL contains a password, the message does not show it.
    """
    try:
        expected, url = (
            urlsplit(server_url.rstrip("/")),
            urlsplit(reference if "://" in reference else f"//{reference}"),
        )
        is_this_server = url.netloc.lower() == expected.netloc.lower()
        match = (
            ISSUE_URL_PATH.fullmatch(url.path.removeprefix(expected.path))
            if is_this_server
            else SHORT_REFERENCE.fullmatch(reference)
        )
        if match is not None:
            return Repo(owner=match[1], name=match[2]), int(match[3])
        is_other_server = "://" in reference and not is_this_server
        reference = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl().removeprefix("//")
    except ValueError:  # This is not a valid URL or repository name.
        is_other_server, reference = False, reference.rpartition("@")[2]
    raise UsageError(
        f"'{reference}' is not an issue. "
        f"Pass the URL of an issue, such as {server_url.rstrip('/')}/OWNER/REPO/issues/7, or OWNER/REPO#7"
        + ("; for another server, set GITHUB_SERVER_URL" if is_other_server else "")
    )
