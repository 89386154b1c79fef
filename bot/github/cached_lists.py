"""Caches lists from GitHub, so that GitHub sends a list again only if it has changed."""

from collections import OrderedDict
from typing import Generic, TypeVar

from patchwright.bot.github.rest import PER_PAGE, Principal, RestClient

T = TypeVar("T")

MAX_LISTS = 100  # maximum number of lists to keep


class CachedLists(Generic[T]):
    """Keeps the latest lists of one kind with their ETags. A request for an unchanged list does not count
    toward GitHub's rate limit.
    """

    def __init__(self, rest: RestClient, page_type: type[T]) -> None:
        """`page_type` is the type of one page."""
        self._rest = rest
        self._page_type = page_type
        self._lists: OrderedDict[object, tuple[str, T]] = OrderedDict()

    async def get_pages(self, principal: Principal, *path: str, key: object = None) -> list[T]:
        """Returns all pages of the list at this path. Raises ForgeError.

        If different principals see different lists at the same path, `key` tells these lists apart.
        """
        cached = self._lists.pop((path, key), None)
        query = {"per_page": str(PER_PAGE)}
        page = await self._rest.get_page(
            self._page_type, principal, *path, etag=cached[0] if cached else "", **query
        )
        if page is None:
            assert cached is not None, "the request has an etag only if the list is cached"
            self._lists[path, key] = cached
            return [cached[1]]
        if page.next_query:  # An ETag identifies a single page, so longer lists are not kept.
            later = self._rest.iter_pages(self._page_type, principal, *path, **page.next_query)
            return [page.data, *[one async for one in later]]
        self._lists[path, key] = page.etag, page.data
        while len(self._lists) > MAX_LISTS:
            self._lists.popitem(last=False)
        return [page.data]
