"""What a browser's own words mean for a model: each failure with what to try instead. And which addresses it opens."""

import re
from urllib.parse import urlsplit

_LONGEST = 600  # characters of a browser's own words
_LONGEST_URL = 8_000  # characters

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?!\d)")
_LOOPBACK = re.compile(r"localhost|.+\.localhost|127(\.\d{1,3}){3}|::1")
_ANY_ADDRESS = re.compile(r"(?<=//)(0\.0\.0\.0|\[::\])(?=[:/?#]|$)")
_COVER = re.compile(r"(<.*) intercepts pointer events")

# The first of these that the browser's words contain decides.
_ELEMENTS = (
    (
        "is not visible",
        "it is not visible: open the menu, tab or section that holds it first, or scroll to it",
    ),
    ("is not enabled", "it is disabled: fill in or choose first what enables it"),
    ("is not editable", "it is read-only: there may be a button that makes it editable"),
    (
        "outside of the viewport",
        "it cannot be scrolled into view: scroll the area that holds it, or use the keyboard",
    ),
    ("is not stable", "it keeps moving: wait with noop(), then try again"),
    ("not attached", "it was removed from the page meanwhile: take it from the tree again"),
    ("not an <input>, <textarea>", "it takes no text: choose the input, textarea or editable element itself"),
    (
        "cannot be filled",
        "it takes no text: use check, select_option, click or upload_file for such an input",
    ),
    ("Malformed value", "the value has not this input's format: 2024-12-31 for a date, 23:59 for a time"),
    ("Cannot type text into input", "this input takes only numbers"),
    ("not a <select>", "it is no select element: click it, then click the option in the tree"),
    ("Not a checkbox or radio button", "it is no checkbox and no radio button: click it"),
    ("Cannot uncheck radio button", "a radio button is unchecked by checking another of its group"),
    (
        "did not change its state",
        "the click did not change its state: click its label, or what it depends on",
    ),
    (
        "Unknown key",
        "there is no such key: names are Enter, Tab, ArrowDown, a, KeyA, F1, joined as in Control+a",
    ),
    ("File chooser", "no file chooser opened: choose the file input, or the button that opens it"),
    ("filechooser", "no file chooser opened: choose the file input, or the button that opens it"),
    ("Non-multiple file input", "this input takes one file only"),
)
_CLOSED = ("has been closed", "Connection closed")
_GONE = (
    "Execution context was destroyed",
    "Cannot find context",
    "No node with given id",
    "navigat",
    "belong to the document",
)
_NAVIGATION = (
    ("ERR_CONNECTION_REFUSED", "nothing listens there: is the server started, and on this port?"),
    ("ERR_NAME_NOT_RESOLVED", "there is no such host"),
    ("ERR_TOO_MANY_REDIRECTS", "it redirects without end"),
    ("ERR_EMPTY_RESPONSE", "the server closed the connection without an answer"),
    ("ERR_CONNECTION_RESET", "the server closed the connection"),
    ("ERR_INVALID_AUTH_CREDENTIALS", "it wants a user and a password: goto(\"http://user:password@host/\") gives them"),
    ("ERR_CERT", "its certificate is not trusted here: try http instead of https; where a network puts in its own, "
                 "the operator's setting `ca_bundle` names it"),
    ("ERR_SSL_PROTOCOL_ERROR", "it does not speak https: try http"),
    ("ERR_UNSAFE_PORT", "browsers refuse this port: let the server listen on another, such as 8000"),
    ("ERR_ABORTED", "the server answered with nothing to show, or something else was opened meanwhile"),
    ("ERR_UNSAFE_REDIRECT", "it leads to an address that is not of the web"),
    ("ERR_INVALID_RESPONSE", "the server's answer is not HTTP"),
    ("invalid URL", "this is no address: write it whole, as in http://localhost:8000/"),
)  # fmt: skip
_NO_WAY = ("ERR_PROXY_CONNECTION_FAILED", "ERR_TUNNEL_CONNECTION_FAILED", "ERR_NO_SUPPORTED_PROXIES")


class Undone(Exception):
    """A call could not be done; the message tells the model why, and what to try instead."""


def explain(said: str, online: bool) -> str:
    """A browser's words as a reason and what to try instead. `online`: a proxy leads out of the sandbox."""
    if any(error in said for error in _NO_WAY):
        if online:
            return "the sandbox's proxy does not lead there: the operator's settings `network` and `allow_hosts` decide"
        return (
            "this sandbox has no way out, its browser reaches only its own localhost: "
            "the operator's setting `network` would allow more"
        )
    if cover := _COVER.search(said):
        return f"it is covered by {_short(cover[1].strip(), 200)}: close what covers it (a dialog, a banner), or scroll"
    if is_closed(said):
        return "its tab, or the whole browser, was closed meanwhile"
    for words, meaning in (*_ELEMENTS, *_NAVIGATION):
        if words in said:
            return meaning
    if any(words in said for words in _GONE):
        return "the page changed meanwhile: look at its tree again"
    return _own_words(said)


def broken(failed: Exception) -> str:
    """What is said when the browser itself gave up on a turn."""
    if isinstance(failed, TimeoutError):
        why = "the page is too large or too busy for it"
    elif is_closed(str(failed)):
        why = "it has ended, perhaps because the page took all memory"
    else:
        why = _own_words(str(failed))
    return (f"the browser failed: {why}. The next call starts it again, with a blank tab: try another page, or a "
            "smaller part of this one (its text can be had without a browser)")  # fmt: skip


def is_closed(said: str) -> bool:
    """Whether the browser's words mean that the tab or the browser itself has ended."""
    return any(words in said for words in _CLOSED)


def _own_words(said: str) -> str:
    """The first line, without the name of the vendor's function before it and its log behind it."""
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", said).splitlines() if line.strip()]
    first = re.sub(
        r"^(?:Error: )?(?:\w+\.\w+: )?(?:Protocol error \([\w.]+\): )?", "", lines[0] if lines else ""
    )
    if re.fullmatch(r"Timeout \d+ms exceeded\.?", first):
        return (
            "it was not ready in time: look at the tree, it may be hidden, disabled, moving, or the page busy"
        )
    return _short(first, _LONGEST) or "the browser said no reason"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def address(url: str) -> str:
    """The address that a person who types this means. Raises Undone for what the browser does not open."""
    url = url.strip()
    if url == "about:blank":
        return url
    if len(url) > _LONGEST_URL:
        raise Undone(f"an address has at most {_LONGEST_URL} characters")
    if scheme := _SCHEME.match(url):
        if scheme[1].lower() not in ("http", "https"):
            raise Undone(
                f"{_short(scheme[1], 40)}: addresses are not opened, only http and https: "
                "serve files of the sandbox on localhost, or read them without the browser"
            )
    else:
        here = re.match(r"/*(?:localhost|127\.|0\.0\.0\.0|\[::1?\])", url)
        url = f"{'http' if here else 'https'}://{url.lstrip('/')}"
    # What servers print as their address when they listen on all of them.
    return _ANY_ADDRESS.sub("localhost", url, count=1)


def is_local(url: str) -> bool:
    """Whether a page comes from the sandbox's own loopback."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and _LOOPBACK.fullmatch(host) is not None
