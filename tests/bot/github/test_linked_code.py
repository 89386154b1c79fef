"""Code behind links to gists and online editors is fetched with bounds, and other URLs are never requested."""

import json

import pytest

from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.github.linked_code import MAX_CODE_BYTES, LinkedCodeDownloader
from patchwright.demo.github import FakeGitHub
from patchwright.resolver.domain import Credentials
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.preparation.attachments import fetch_attachments
from tests.bot.github.test_attachments import REPO, forge, issue, png

__all__ = ["forge"]
GIST = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
PEN = "https://codepen.io/octocat/pen/abCDef"


def add_gist(fake_github: FakeGitHub, gist: str, files: dict[str, str]) -> str:
    """Adds a gist with these files, and returns its URL."""
    contents = {name: {"filename": name, "content": text, "truncated": False} for name, text in files.items()}
    fake_github.add_attachment(f"/api/v3/gists/{gist}", json.dumps({"files": contents}).encode())
    return f"{fake_github.server_url}/gist/octocat/{gist}"


async def get_credentials() -> Credentials:
    raise AssertionError("no site but the forge gets a token")


def editors(site: FakeGitHub) -> LinkedCodeDownloader:
    """Returns a downloader whose online editors are this server."""
    base = f"{site.server_url}/user-attachments"
    return LinkedCodeDownloader(site.urls, None, {"codepen.io": base, "jsfiddle.net": base})


async def test_a_gist_is_one_text_with_all_its_files(fake_github: FakeGitHub, forge: GitHubForge) -> None:
    url = add_gist(fake_github, GIST, {"a.py": "print(1)\n", "b.txt": "two"})
    attachments = await fetch_attachments(issue(f"See {url}."), REPO, forge)
    (file,) = attachments.files
    assert (file.name, file.media_type) == (f"1-{GIST}", "text/plain")
    assert file.data == b"=== a.py ===\nprint(1)\n\n=== b.txt ===\ntwo\n"
    assert fake_github.attachment_requests == [(f"/api/v3/gists/{GIST}", f"Bearer {fake_github.tokens[0]}")]


async def test_a_pen_and_a_fiddle_are_fetched_without_a_token(fake_github: FakeGitHub) -> None:
    for name, text in (("html", "<b>hi</b>"), ("css", ""), ("js", "let a = 1")):
        fake_github.add_attachment(f"octocat/pen/abCDef.{name}", text.encode())
    fake_github.add_attachment("octocat/x1y2/3/show/light/", b"<script>run()</script>")
    downloader = editors(fake_github)
    for form in ("pen", "full", "details"):
        pen = await downloader.fetch(PEN.replace("pen/", f"{form}/"), get_credentials)
        assert pen == b"=== html ===\n<b>hi</b>\n\n=== js ===\nlet a = 1\n"
    fiddle = await downloader.fetch("https://jsfiddle.net/octocat/x1y2/3/", get_credentials)
    assert fiddle == b"=== result.html ===\n<script>run()</script>\n"
    assert {token for _, token in fake_github.attachment_requests} == {None}


async def test_a_site_without_a_download_is_named_as_not_fetched(
    fake_github: FakeGitHub, forge: GitHubForge
) -> None:
    link = "https://stackblitz.com/edit/vitejs-vite-1"
    attachments = await fetch_attachments(issue(link), REPO, forge)
    assert attachments.files == ()
    assert attachments.problems == (
        f"{link}: not fetched, because this site offers no download of its code.",
    )


@pytest.mark.parametrize(
    "url",
    [
        "https://codepen.io.evil.example/octocat/pen/abCDef",
        "https://codepen.io@evil.example/octocat/pen/abCDef",
        "https://codepen.io:8443/octocat/pen/abCDef",
        "https://codepen.io/octocat/pen/../../logout",
        "https://codepen.io/octocat/pen/abCDef.html?x=1/../..",
        "https://codepen.io/login",
        "https://jsfiddle.net/a/../../b",
        "https://jsfiddle.net/a/b/c/d/e",
        f"https://gist.github.com/octocat/{GIST}",  # This forge is not github.com.
        "http://169.254.169.254/gist/octocat/" + GIST,
        "https://[::1/",
    ],
)
async def test_other_links_are_not_requested(fake_github: FakeGitHub, url: str) -> None:
    assert await editors(fake_github).fetch(url, get_credentials) is None
    assert fake_github.attachment_requests == []


async def test_a_redirect_to_another_address_is_not_followed(fake_github: FakeGitHub) -> None:
    async with FakeGitHub() as private:
        target = private.add_attachment("secret", b"secret")
        fake_github.add_attachment("octocat/pen/abCDef.html", status=302, headers={"location": target})
        with pytest.raises(ForgeError, match="redirects to an address that is not allowed"):
            await editors(fake_github).fetch(PEN, get_credentials)
        assert private.attachment_requests == []
        # The same redirect is followed on the same site, so that the test above shows the defense.
        moved = fake_github.add_attachment("moved", b"<b>moved</b>")
        fake_github.add_attachment("octocat/pen/abCDef.html", status=302, headers={"location": moved})
        for name in ("css", "js"):
            fake_github.add_attachment(f"octocat/pen/abCDef.{name}")
        pen = await editors(fake_github).fetch(PEN, get_credentials)
        assert pen == b"=== html ===\n<b>moved</b>\n"


async def test_large_missing_and_unreadable_code_is_named(
    fake_github: FakeGitHub, forge: GitHubForge
) -> None:
    large = add_gist(fake_github, GIST, {"a": "x" * MAX_CODE_BYTES})
    missing = add_gist(fake_github, "2" * 32, {})
    fake_github.add_attachment(f"/api/v3/gists/{'2' * 32}", status=404)
    empty = add_gist(fake_github, "3" * 32, {"a": " "})
    broken = add_gist(fake_github, "4" * 32, {})
    fake_github.add_attachment(f"/api/v3/gists/{'4' * 32}", png())
    attachments = await fetch_attachments(issue(f"{large} {missing} {empty} {broken}"), REPO, forge)
    assert attachments.files == ()
    assert attachments.problems == (
        f"{large}: the code is larger than 1 MB.",
        f"{missing}: the server returned 404.",
        f"{empty}: there is no code.",
        f"{broken}: the gist cannot be read.",
    )
