"""Explains browser errors to the model, suggests what to try instead, and checks URLs."""

import re
from urllib.parse import urlsplit

_MAX_MESSAGE = 600  # maximum characters of a message from the browser
_MAX_URL = 8_000  # maximum characters of a URL

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?!\d)")
_LOOPBACK = re.compile(r"localhost|.+\.localhost|127(\.\d{1,3}){3}|::1")
_ANY_ADDRESS = re.compile(r"(?<=//)(0\.0\.0\.0|\[::\])(?=[:/?#]|$)")
_COVERED = re.compile(r"(<.*) intercepts pointer events")

# If a message from the browser matches several patterns, the first one is used.
_ELEMENT_HINTS = (
    (
        "is not visible",
        "the element is not visible: open the menu, tab or section that contains it, or scroll to it",
    ),
    ("is not enabled", "the element is disabled: first use the control that enables it"),
    ("is not editable", "the element is read-only: look for a button that makes it editable"),
    (
        "outside of the viewport",
        "the element cannot be scrolled into view: scroll the area that contains it, or use the keyboard",
    ),
    ("is not stable", "the element keeps moving: wait with noop(), then try again"),
    ("not attached", "the element was removed from the page: find it in the tree again"),
    (
        "not an <input>, <textarea>",
        "the element accepts no text: choose the input, textarea or editable element itself",
    ),
    (
        "cannot be filled",
        "the element accepts no text: use check, select_option, click or upload_file for an input of this type",
    ),
    (
        "Malformed value",
        "the value has the wrong format for this input: write a date as 2024-12-31 and a time as 23:59",
    ),
    ("Cannot type text into input", "this input accepts only numbers"),
    ("not a <select>", "the element is not a select element: click it, then click the option in the tree"),
    ("Not a checkbox or radio button", "the element is not a checkbox or radio button: click it"),
    (
        "Cannot uncheck radio button",
        "a radio button cannot be unchecked: check another radio button of its group",
    ),
    (
        "did not change its state",
        "the click did not check or uncheck the element: click its label, or the control that it depends on",
    ),
    (
        "Unknown key",
        "there is no such key: names are Enter, Tab, ArrowDown, a, KeyA or F1, and combinations such as Control+a",
    ),
    ("File chooser", "no file chooser opened: choose the file input, or the button that opens it"),
    ("filechooser", "no file chooser opened: choose the file input, or the button that opens it"),
    ("Non-multiple file input", "this input accepts only one file"),
)
_CLOSED_ERRORS = ("has been closed", "Connection closed")
_STALE_ERRORS = (
    "Execution context was destroyed",
    "Cannot find context",
    "No node with given id",
    "navigat",
    "belong to the document",
)
_NAVIGATION_HINTS = (
    ("ERR_CONNECTION_REFUSED", "no server listens at this address: check that the server is running, and that it "
                               "uses this port"),
    ("ERR_NAME_NOT_RESOLVED", "there is no such host"),
    ("ERR_TOO_MANY_REDIRECTS", "the URL redirects endlessly"),
    ("ERR_EMPTY_RESPONSE", "the server closed the connection without a response"),
    ("ERR_CONNECTION_RESET", "the server closed the connection"),
    ("ERR_INVALID_AUTH_CREDENTIALS", "the server requires a password: use goto(\"http://user:password@host/\")"),
    ("ERR_CERT", "the server's certificate is not trusted: try http instead of https. If the network has its own "
                 "certificates, the operator must set `ca_bundle`"),
    ("ERR_SSL_PROTOCOL_ERROR", "the server does not support https: try http"),
    ("ERR_UNSAFE_PORT", "browsers refuse this port: let the server listen on another port, such as 8000"),
    ("ERR_ABORTED", "the response contains no page, or the tab opened another page at the same time"),
    ("ERR_UNSAFE_REDIRECT", "the URL redirects to a URL that is not http or https"),
    ("ERR_INVALID_RESPONSE", "the server's response is not HTTP"),
    ("invalid URL", "this is not a URL: write it in full, as in http://localhost:8000/"),
)  # fmt: skip
_PROXY_ERRORS = ("ERR_PROXY_CONNECTION_FAILED", "ERR_TUNNEL_CONNECTION_FAILED", "ERR_NO_SUPPORTED_PROXIES")


class BrowserCallFailed(Exception):
    """Raised if a call failed. The message tells the model why, and what to try instead."""


def explain_error(message: str, online: bool) -> str:
    """Explain a browser's error message, and suggest what to try instead. `online` is True if the sandbox has
    a proxy.
    """
    if any(error in message for error in _PROXY_ERRORS):
        if online:
            return (
                "the sandbox's proxy does not allow this host: "
                "only the operator can allow it, with the settings `network` and `allowed_hosts`"
            )
        return (
            "this sandbox has no network, so its browser can open only pages on localhost: "
            "only the operator can change this, with the setting `network`"
        )
    if match := _COVERED.search(message):
        element = _truncate(match[1].strip(), 200)
        return f"the element is covered by {element}: close what covers it, such as a dialog or banner, or scroll"
    if is_closed_error(message):
        return "the tab or the whole browser was closed during the call"
    for pattern, hint in (*_ELEMENT_HINTS, *_NAVIGATION_HINTS):
        if pattern in message:
            return hint
    if any(pattern in message for pattern in _STALE_ERRORS):
        return "the page changed during the call: look at its tree again"
    return _clean_message(message)


def explain_browser_failure(error: Exception) -> str:
    """Explain to the model why the browser itself failed while it ran calls."""
    if isinstance(error, TimeoutError):
        reason = "the page is too large or too busy"
    elif is_closed_error(str(error)):
        reason = "Chromium has exited, perhaps because the page used up the memory"
    else:
        reason = _clean_message(str(error))
    return (f"the browser failed: {reason}. The next call restarts the browser with a blank tab: try another page, "
            "or read the text of this page without a browser")  # fmt: skip


def is_closed_error(message: str) -> bool:
    """True if the message says that the tab or the browser itself has ended."""
    return any(words in message for words in _CLOSED_ERRORS)


def _clean_message(message: str) -> str:
    """Return the first line of a message, without the name of Playwright's function and without Playwright's
    call log.
    """
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", message).splitlines() if line.strip()]
    first = re.sub(
        r"^(?:Error: )?(?:\w+\.\w+: )?(?:Protocol error \([\w.]+\): )?", "", lines[0] if lines else ""
    )
    if re.fullmatch(r"Timeout \d+ms exceeded\.?", first):
        return (
            "the element was not ready in time (it may be hidden, disabled or moving, or the page may be busy): "
            "look at the tree"
        )
    return _truncate(first, _MAX_MESSAGE) or "the browser gave no reason"


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


def normalize_url(url: str) -> str:
    """Complete a URL as a browser's address bar does. Raises BrowserCallFailed for unsupported URLs."""
    url = url.strip()
    if url == "about:blank":
        return url
    if len(url) > _MAX_URL:
        raise BrowserCallFailed(f"a URL must not have more than {_MAX_URL} characters")
    if scheme := _SCHEME.match(url):
        if scheme[1].lower() not in ("http", "https"):
            raise BrowserCallFailed(
                f"{_truncate(scheme[1], 40)}: URLs are not supported, only http and https: "
                "to see a file of the sandbox, serve it on localhost, or read it without the browser"
            )
    else:
        is_local = re.match(r"/*(?:localhost|127\.|0\.0\.0\.0|\[::1?\])", url)
        url = f"{'http' if is_local else 'https'}://{url.lstrip('/')}"
    # A server that listens on all addresses prints 0.0.0.0 or [::], which stand for localhost.
    return _ANY_ADDRESS.sub("localhost", url, count=1)


def is_local_url(url: str) -> bool:
    """True if the URL leads to this sandbox itself, because the URL's host is localhost or a loopback address."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and _LOOPBACK.fullmatch(host) is not None
