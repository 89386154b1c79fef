"""Fetches the code of the gists and online editors that a thread links to.

The links come from untrusted text. A request goes only to the fixed address of a known site, with a path that has the
exact form of that site's links. Redirects must stay on that site.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from patchwright.bot.github.attachments import download, is_same_origin
from patchwright.bot.github.auth import GitHubServer
from patchwright.bot.github.schemas import GistResponse
from patchwright.bot.github.tls import create_ssl_context
from patchwright.resolver.domain import Credentials
from patchwright.resolver.errors import ForgeError

MAX_CODE_BYTES = 1_000_000  # bytes of all files of one link
GIST_HOST = "gist.github.com"
SITES = {
    # Source: the URLs of a pen's source code, blog.codepen.io/documentation/url-extensions
    "codepen.io": "https://codepen.io",
    # A fiddle's result as one page, docs.jsfiddle.net
    "jsfiddle.net": "https://fiddle.jshell.net",
}
"""The address from which the code of each online editor is fetched."""
UNSUPPORTED_SITES = frozenset({"stackblitz.com", "codesandbox.io", "plnkr.co", "replit.com"})

_GIST = re.compile(r"/(?:[\w-]+/)?([0-9a-f]{20,40})(?:/[0-9a-f]{40})?/?", re.ASCII)
_PEN = re.compile(r"/([\w-]+)/(?:pen|full|details|embed)/([A-Za-z]{4,12})/?", re.ASCII)
_FIDDLE = re.compile(r"((?:/[\w-]+){1,3}?)(?:/(?:show|embedded))?/?", re.ASCII)


class LinkedCodeDownloader:
    """Downloads code from the gists of one forge, and from online editors."""

    def __init__(
        self, server: GitHubServer, ca_bundle: Path | None, sites: Mapping[str, str] = SITES
    ) -> None:
        self._server_url, self._api_url = server.github_server_url, server.github_api_url
        self._ssl_context = create_ssl_context(ca_bundle)
        self._sites = sites

    async def fetch(self, url: str, get_credentials: Callable[[], Awaitable[Credentials]]) -> bytes | None:
        """Returns the code behind a link as one text, or None if the link leads to no known site.

        Sends the token to the forge's API only. Raises ForgeError if the code cannot be fetched.
        """
        host, path = self._split_link(url)
        if host in UNSUPPORTED_SITES:
            raise ForgeError("not fetched, because this site offers no download of its code")
        if host == GIST_HOST:
            match = _GIST.fullmatch(path)
            return await self._fetch_gist(match[1], (await get_credentials()).token) if match else None
        if host == "codepen.io" and (match := _PEN.fullmatch(path)):
            paths = {name: f"/{match[1]}/pen/{match[2]}.{name}" for name in ("html", "css", "js")}
        elif host == "jsfiddle.net" and (match := _FIDDLE.fullmatch(path)):
            paths = {"result.html": f"{match[1]}/show/light/"}
        else:
            return None
        files = {name: await self._get(self._sites[host] + each) for name, each in paths.items()}
        return _join_files({name: content.decode("utf-8", "replace") for name, content in files.items()})

    def _split_link(self, url: str) -> tuple[str, str]:
        """Returns the site and the path of a link. The site of a gist is GIST_HOST on every forge."""
        try:
            parts = urlsplit(url)
            host = (parts.netloc or "").lower().removeprefix("www.")
        except ValueError:
            return "", ""
        if urlsplit(self._server_url).hostname == "github.com":
            return host, parts.path
        # GitHub Enterprise Server without subdomains has its gists below this path.
        if is_same_origin(url, self._server_url) and parts.path.startswith("/gist/"):
            return GIST_HOST, parts.path.removeprefix("/gist")
        return ("", "") if host == GIST_HOST else (host, parts.path)

    async def _fetch_gist(self, gist: str, token: str) -> bytes:
        content = await self._get(f"{self._api_url}/gists/{gist}", token)
        try:
            files = GistResponse.model_validate_json(content).files
        except ValidationError as exc:
            raise ForgeError("the gist cannot be read") from exc
        return _join_files(
            {
                name: file.content + ("\n[cut by GitHub]" if file.truncated else "")
                for name, file in files.items()
            }
        )

    async def _get(self, url: str, token: str = "") -> bytes:
        return await download(
            url,
            self._ssl_context,
            may_redirect_to=lambda target: is_same_origin(target, url),
            token_origin=self._api_url if token else "",
            token=token,
        )


def _join_files(files: Mapping[str, str]) -> bytes:
    texts = (f"=== {name} ===\n{content.rstrip()}\n" for name, content in files.items() if content.strip())
    joined = "\n".join(texts).encode()
    if not joined:
        raise ForgeError("there is no code")
    if len(joined) > MAX_CODE_BYTES:
        raise ForgeError(f"the code is larger than {MAX_CODE_BYTES // 1_000_000} MB")
    return joined
