"""Observations: the results of actions. They are sent over the wire and stored in the log."""

from typing import Annotated, Literal

from pydantic import Field

from patchwright.runtime.frozen_model import FrozenModel


class ImageData(FrozenModel):
    """An image that can be shown to a model."""

    media_type: Literal["image/png", "image/jpeg", "image/webp", "image/gif"]
    data: bytes = Field(max_length=4 << 20)


class ShellResult(FrozenModel):
    """Result of a shell command. The command has ended, was killed, or is still running."""

    kind: Literal["shell_result"] = "shell_result"
    output: str
    """Standard output and standard error, in the order of arrival. Bytes that are not UTF-8 become
    replacement characters. If the output is long, only its head and tail are kept.
    """
    exit_code: int | None
    """Exit code of the command. None if the command was killed at its timeout, if the command is still running,
    or if the shell itself has ended. `note` gives the reason.
    """
    cwd: str
    """Working directory of the shell after the command."""
    seconds: float
    note: str | None = None


class TextResult(FrozenModel):
    """Text for the model: part of a file, a directory listing or search results."""

    kind: Literal["text_result"] = "text_result"
    text: str
    images: tuple[ImageData, ...] = Field(default=(), max_length=1)
    """The viewed file, if it is a picture and the model sees."""


class EditResult(FrozenModel):
    """Result of an edit that changed a file."""

    kind: Literal["edit_result"] = "edit_result"
    path: str
    diff: str
    place: str = ""
    """Where the file changed, such as `lines 3-5 of 40`. If it is empty (in an older log), the model reads the diff."""
    warning: str | None = None
    """A syntax error that the file contains after the edit, with the number of its line."""


class ExecuteResult(FrozenModel):
    """Result of a program. The output is raw bytes. If a stream has more than 4 MiB, only its head and tail are
    kept.
    """

    kind: Literal["execute_result"] = "execute_result"
    exit_code: int | None
    """Exit code of the program. 128 plus the signal number if a signal ended the program. None if the program
    was killed at its timeout.
    """
    stdout: bytes
    stderr: bytes
    seconds: float


class FileContent(FrozenModel):
    """Bytes read from a file."""

    kind: Literal["file_content"] = "file_content"
    content: bytes
    size: int
    """Size of the whole file in bytes."""


class WriteResult(FrozenModel):
    """Result of writing bytes to a file."""

    kind: Literal["write_result"] = "write_result"
    size: int


class CellResult(FrozenModel):
    """Result of a Python cell."""

    kind: Literal["cell_result"] = "cell_result"
    output: str
    """Text that the cell printed, displayed or returned, and the traceback of its error, in the order of
    arrival. If the text is long, only its head and tail are kept.
    """
    ok: bool
    """False if the cell raised an exception, was interrupted, or ended with its session. `output` and `note`
    give the reason.
    """
    images: tuple[ImageData, ...] = Field(default=(), max_length=4)
    seconds: float
    note: str | None = None
    """A remark by Patchwright, for example that the cell was interrupted, or that images were left out. After
    a restart of the session, the remark says what was lost.
    """


class HostRequest(FrozenModel):
    """A request from a Python cell to the host: ask a model about files. The cell waits for a `HostReply`."""

    kind: Literal["host_request"] = "host_request"
    modality: Literal["image", "audio", "video"]
    files: tuple[str, ...] = Field(max_length=64)
    """Absolute paths in the sandbox. They are the image, the recording, or the frames of the video in their
    order.
    """
    task: str = Field(default="", max_length=10_000)
    model: str | None = Field(default=None, max_length=200)
    """The model that the code requests. None means the configured model."""


class SnapshotOptions(FrozenModel):
    """Options for a page snapshot. Source: arXiv:2407.16741v2, section 2.2, and BrowserGym's own options."""

    axtree: bool = True
    """Include the accessibility tree."""
    html: bool = False
    """Include the rendered elements as HTML, without scripts, styles, and wrappers that have no meaning."""
    dom: bool = False
    """Include the DOM with all elements and attributes."""
    screenshot: bool = False
    marks: bool = True
    """Draw boxes with the ids (`bid`) of interactive elements on the screenshot."""
    viewport_only: bool = False
    """True if tree, HTML and DOM contain only elements that are at least partly in the viewport. If False, each of
    them contains all elements, unless it would be too large.
    """
    flag_visible: bool = False
    flag_clickable: bool = True
    flag_focused: bool = True
    max_chars: int = Field(default=20_000, ge=500, le=100_000)
    """Maximum characters of the tree, of the HTML, and of the DOM."""


SnapshotPart = Literal[
    "axtree",
    "html",
    "dom",
    "screenshot",
    "marks",
    "viewport_only",
    "flag_visible",
    "flag_clickable",
    "flag_focused",
]
"""An option of a snapshot that can be turned on."""


class Tab(FrozenModel):
    """One open tab of the browser."""

    url: str
    title: str
    active: bool = False


class PageSnapshot(FrozenModel):
    """The state of the browser after the calls of an action."""

    kind: Literal["page_snapshot"] = "page_snapshot"
    url: str
    title: str
    tree: str = ""
    """Accessibility tree, one node per line: `[12] button 'Send', clickable`. The number in brackets is the
    id of the element (`bid`), which calls take as an argument. An element keeps its id as long as it exists.
    """
    html: str = ""
    """Rendered elements as HTML. The attribute `bid` of an element is its id, the same as in the tree."""
    dom: str = ""
    """All elements of the DOM, written as in `html`."""
    tabs: tuple[Tab, ...]
    focused_bid: str | None = None
    """Id (`bid`) of the focused element."""
    error: str | None = None
    """Why the last call failed. Contains the line of the call, and suggests what to try instead."""
    notes: tuple[str, ...] = ()
    """Other events: dialogs, downloads, tabs that were opened, a restart of the browser, or a tree that was
    shortened.
    """
    screenshot: ImageData | None = None
    user_message: str | None = None
    """The model's answer to the user: the argument of `send_msg_to_user`."""
    infeasible_reason: str | None = None
    """The reason why the goal cannot be reached: the argument of `report_infeasible`."""

    @property
    def content(self) -> str:
        """The content of the page in all forms that were requested."""
        return "\n\n".join(filter(None, (self.tree, self.html, self.dom)))


class ProcessOutput(FrozenModel):
    """The result of a ProcessExchange: the output of a program since the previous exchange."""

    kind: Literal["process_output"] = "process_output"
    lines: bytes = Field(max_length=12 << 20)
    """Whole lines, each with its line end."""
    has_ended: bool
    """True if the program will print no more output."""
    exit_code: int | None
    """Exit code of the program. None if the program is still running or its exit code is unknown."""
    stderr: str
    """Standard error output since the previous exchange, shortened if it is long. If Patchwright killed the
    program, the field contains the reason instead.
    """


class TreeFingerprint(FrozenModel):
    """Fingerprint of the work tree's state."""

    kind: Literal["tree_fingerprint"] = "tree_fingerprint"
    fingerprint: str | None = Field(max_length=100)
    """The fingerprint; None if the sandbox cannot compute one. The tree must then be scanned to find changes.
    """
    previous: str | None = Field(default=None, max_length=100)
    """The fingerprint of the state before the last change; None if it is unknown."""
    changed: tuple[str, ...] | None = Field(default=None, max_length=100)
    """The files that the last change wrote, created or removed, relative to the root; None if they are unknown."""
    removed: tuple[str, ...] = Field(default=(), max_length=100)
    """Those of them that do not exist now."""


class Acknowledgment(FrozenModel):
    """The action was carried out and has no other result."""

    kind: Literal["acknowledgment"] = "acknowledgment"
    text: str


class ActionFailure(FrozenModel):
    """The action failed. The message says what to do instead."""

    kind: Literal["action_failure"] = "action_failure"
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
    ShellResult
    | CellResult
    | HostRequest
    | PageSnapshot
    | TextResult
    | EditResult
    | ExecuteResult
    | FileContent
    | WriteResult
    | ProcessOutput
    | TreeFingerprint
    | Acknowledgment
    | ActionFailure,
    Field(discriminator="kind"),
]
