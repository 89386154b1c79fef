"""Playwright's types under the names `Vendor*`, for the modules of this package.

They exist only for type checkers: without the `browser` feature, Playwright is not installed.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext as VendorContext
    from playwright.async_api import CDPSession as VendorSession
    from playwright.async_api import Dialog as VendorDialog
    from playwright.async_api import Download as VendorDownload
    from playwright.async_api import ElementHandle as VendorElement
    from playwright.async_api import Frame as VendorFrame
    from playwright.async_api import Page as VendorPage
    from playwright.async_api import Playwright as VendorPlaywright
    from playwright.async_api import Request as VendorRequest
    from playwright.async_api import Response as VendorResponse
    from playwright.async_api import Route as VendorRoute

    __all__ = [
        "VendorContext",
        "VendorDialog",
        "VendorDownload",
        "VendorElement",
        "VendorFrame",
        "VendorPage",
        "VendorPlaywright",
        "VendorRequest",
        "VendorResponse",
        "VendorRoute",
        "VendorSession",
    ]
