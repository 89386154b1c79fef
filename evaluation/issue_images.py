"""Downloads the images of an issue (SWE-bench Multimodal)."""

import httpx

from patchwright.evaluation.instances import Instance
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.forge import MAX_ATTACHMENT

TIMEOUT = 30.0  # seconds


class IssueImages:
    """The images that the data set names for an instance."""

    def __init__(self, instance: Instance) -> None:
        self._urls = frozenset(instance.images)

    async def download_attachment(self, repo: Repo, url: str) -> bytes | None:
        """Returns the image, or None if the data set does not name the URL. Raises ForgeError."""
        if url not in self._urls:
            return None
        try:
            async with httpx.AsyncClient(follow_redirects=True, timeout=TIMEOUT) as client:
                response = (await client.get(url)).raise_for_status()
        except httpx.HTTPError as exc:
            raise ForgeError(f"the image cannot be downloaded ({type(exc).__name__})") from exc
        if len(response.content) > MAX_ATTACHMENT:
            raise ForgeError(f"the image has more than {MAX_ATTACHMENT} bytes")
        return response.content
