"""Observations: what came of an action, as it crosses the wire and stands in the log."""

from typing import Annotated, Literal

from pydantic import Field

from runtime.frozen import Frozen


class Ran(Frozen):
    """A shell command ended, or was ended."""

    kind: Literal["ran"] = "ran"
    output: str
    """Standard output and error as they came, decoded with replacement, clipped head and tail."""
    exit_code: int | None
    """None: unknown, `note` says why (killed at its timeout, still running, the shell itself ended)."""
    cwd: str
    """Working directory of the shell afterwards."""
    seconds: float
    note: str | None = None


class Viewed(Frozen):
    """A file window, a directory listing or what a search found, ready to read."""

    kind: Literal["viewed"] = "viewed"
    text: str


class Edited(Frozen):
    """A file was changed."""

    kind: Literal["edited"] = "edited"
    path: str
    diff: str
    warning: str | None = None
    """A syntax error that the file has now, with its line."""


class Executed(Frozen):
    """A program ended. Output is raw bytes, each stream capped at 4 MiB (head and tail)."""

    kind: Literal["executed"] = "executed"
    exit_code: int | None
    """128 and its number for a signal. None: killed at its timeout."""
    stdout: bytes
    stderr: bytes
    seconds: float


class Content(Frozen):
    """Bytes of a file."""

    kind: Literal["content"] = "content"
    content: bytes
    size: int
    """Size of the whole file in bytes."""


class Written(Frozen):
    """Bytes are in the file."""

    kind: Literal["written"] = "written"
    size: int


class Picture(Frozen):
    """An image that a model may be shown."""

    media: Literal["image/png", "image/jpeg", "image/webp", "image/gif"]
    data: bytes = Field(max_length=4 << 20)


class RanPython(Frozen):
    """A cell ended, or was ended."""

    kind: Literal["ran_python"] = "ran_python"
    output: str
    """What it printed, displayed and returned, and its traceback, in the order in which they came; plain text,
    clipped head and tail."""
    ok: bool
    """False: it raised, was interrupted, or the session ended under it; output and note say which."""
    pictures: tuple[Picture, ...] = Field(default=(), max_length=4)
    seconds: float
    note: str | None = None
    """What the program adds: an interruption, a restart and what is lost with it, pictures that were left out."""


class Wanted(Frozen):
    """A cell waits for what only the host can get: a model's look at files. `Provide` answers it."""

    kind: Literal["wanted"] = "wanted"
    sense: Literal["image", "audio", "video"]
    files: tuple[str, ...] = Field(max_length=64)
    """Absolute paths in the sandbox: the image, the recording, or the frames of the video in order."""
    task: str = Field(default="", max_length=10_000)
    model: str | None = Field(default=None, max_length=200)
    """The model that the code asks for; None: the configured one."""


class Look(Frozen):
    """What an observation of a page shows. Source: arXiv:2407.16741v2, section 2.2, and BrowserGym's own options."""

    screenshot: bool = False
    marks: bool = True
    """Draw boxes with the bids of interactive elements on the screenshot."""
    viewport_only: bool = False
    """Only elements that are at least partly in the viewport; else that is done only when the tree is too large."""
    flag_visible: bool = False
    flag_clickable: bool = True
    flag_focused: bool = True
    most: int = Field(default=20_000, ge=500, le=100_000)
    """Characters of the tree."""


class Tab(Frozen):
    """One open page of the browser."""

    url: str
    title: str
    active: bool = False


class Page(Frozen):
    """What the browser shows after its calls."""

    kind: Literal["page"] = "page"
    url: str
    title: str
    tree: str
    """Accessibility tree, one node a line: `[12] button 'Send', clickable`. The bid in brackets is what calls
    take; it stays the same as long as the element lives."""
    tabs: tuple[Tab, ...]
    focused: str | None = None
    """Bid of the focused element."""
    error: str | None = None
    """Why the last call that was run failed, with its line and what to try instead."""
    notes: tuple[str, ...] = ()
    """What else happened: dialogs, downloads, tabs that opened, a restarted browser, a clipped tree."""
    screenshot: Picture | None = None
    answer: str | None = None
    """What `send_msg_to_user` was given."""
    infeasible: str | None = None
    """What `report_infeasible` was given."""


class Heard(Frozen):
    """What a program that is talked to line by line has said since the last time."""

    kind: Literal["heard"] = "heard"
    lines: bytes = Field(max_length=12 << 20)
    """Whole lines, each with its end."""
    ended: bool
    """Nothing more will come."""
    exit_code: int | None
    """None: it still runs, or ended in an unknown way."""
    said: str
    """What it wrote to standard error since the last time, clipped; or why it was ended."""


class Marked(Frozen):
    """The work tree's state has a name of its own."""

    kind: Literal["marked"] = "marked"
    mark: str | None = Field(max_length=100)
    """None: nobody watches the tree, so that every look at it may find something new."""


class Noted(Frozen):
    """The program heard it."""

    kind: Literal["noted"] = "noted"
    text: str


class Failed(Frozen):
    """The action could not be done; the message says what to do instead."""

    kind: Literal["failed"] = "failed"
    reason: Literal[
        "malformed",
        "not_found",
        "refused",
        "missing",
        "ambiguous",
        "binary",
        "too_large",
        "lost",
        "exists",
        "io",
    ]
    message: str


Observation = Annotated[
    Ran
    | RanPython
    | Wanted
    | Page
    | Viewed
    | Edited
    | Executed
    | Content
    | Written
    | Heard
    | Marked
    | Noted
    | Failed,
    Field(discriminator="kind"),
]
