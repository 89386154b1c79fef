"""Actions and observations: one class is the wire message, the log line, the tool schema and the test value.

The docstring of an action that the model may call is the description that the model reads, and the
`description` of each field explains the argument. Write both for a reader who sees nothing else.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

DEFAULT_SECONDS = 120
MAX_SECONDS = 1800


class Frozen(BaseModel):
    """A value: immutable, equal by content, and strict about unknown fields.

    Its numbers are finite: JSON has no others, so that one from a sandbox could be written to a log, but not read.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_bytes="base64", val_json_bytes="base64"
    )


# --- what the model may ask of the sandbox ------------------------------------------------------------------


class RunShell(Frozen):
    """Run a bash command in the persistent shell and return what it printed and its exit code.

    The working directory, variables, functions and background jobs stay from one call to the next. Standard
    input is empty. A command that outlives its timeout is killed with everything it started; what it had
    printed is returned. Output over 30,000 characters keeps its head and tail, says which lines were cut, and
    names a file in the scratch directory that holds it: view that in parts, or narrow the command (grep,
    sed -n, head).
    """

    kind: Literal["run_shell"] = "run_shell"
    command: str = Field(min_length=1, description="The command, as typed into bash. May be several lines.")
    timeout: int = Field(
        default=DEFAULT_SECONDS, ge=1, le=MAX_SECONDS, description="Seconds until the command is killed."
    )
    interactive: bool = Field(
        default=False,
        description="For a program that asks questions (a prompt, a debugger): its standard input is a terminal, "
        "and at the timeout it is left running instead of killed. Take a short timeout, read what it asks, then "
        "answer with send_input.",
    )


Key = Literal["ctrl-c", "ctrl-d", "kill"]


class SendInput(Frozen):
    """Type at the interactive command that run_shell left running, and return what it has printed since.

    Returns when the command ends, or after the timeout with the command still running. With neither text nor
    key it only waits. Until the command has ended, run_shell is refused.
    """

    kind: Literal["send_input"] = "send_input"
    text: str = Field(
        default="", max_length=4000, description="One or more lines to type. Enter is pressed after them."
    )
    key: Key | None = Field(
        default=None,
        description="Pressed after the text: ctrl-c interrupts, ctrl-d ends the input. kill ends a command that "
        "does not listen, with everything it started.",
    )
    timeout: int = Field(
        default=5, ge=1, le=MAX_SECONDS, description="Seconds to wait for the end of the command."
    )


class ViewFile(Frozen):
    """Show a text file with line numbers, at most 400 lines at a time, or list a directory.

    Lines are never cut out of the middle: when the file goes on, the last line of the answer names the next
    range to ask for.
    """

    kind: Literal["view_file"] = "view_file"
    path: str = Field(min_length=1, description="File or directory, relative to the repository root.")
    start: int = Field(default=1, ge=1, description="First line to show.")
    end: int | None = Field(
        default=None, ge=1, description="Last line to show; at most 400 lines from start."
    )


class CreateFile(Frozen):
    """Create a new file with the given content. Refused when the file exists: use replace_text to change it."""

    kind: Literal["create_file"] = "create_file"
    path: str = Field(min_length=1, description="New file, relative to the repository root.")
    content: str = Field(description="The whole content.")


class ReplaceText(Frozen):
    """Replace one piece of text in a file. `old` must occur exactly once, so include enough lines around it.

    Returns the diff of the edit. A syntax error that a Python file has afterwards is reported with its line.
    """

    kind: Literal["replace_text"] = "replace_text"
    path: str = Field(min_length=1, description="File, relative to the repository root.")
    old: str = Field(
        min_length=1, description="The text to replace, with its exact whitespace, without line numbers."
    )
    new: str = Field(description="The text to put in its place; empty to delete.")


class InsertText(Frozen):
    """Insert text after a line of a file. Returns the diff of the edit."""

    kind: Literal["insert_text"] = "insert_text"
    path: str = Field(min_length=1, description="File, relative to the repository root.")
    line: int = Field(ge=0, description="Insert after this line; 0 inserts at the top of the file.")
    text: str = Field(min_length=1, description="The text to insert, one or more whole lines.")


class UndoEdit(Frozen):
    """Take back the last edit that create_file, replace_text or insert_text made to a file."""

    kind: Literal["undo_edit"] = "undo_edit"
    path: str = Field(min_length=1, description="File, relative to the repository root.")


# --- what only the program asks of the sandbox --------------------------------------------------------------


class Execute(Frozen):
    """One program, outside the persistent shell. `argv` is never seen by a shell."""

    kind: Literal["execute"] = "execute"
    argv: tuple[str, ...] = Field(min_length=1)
    cwd: str | None = None
    """Directory relative to the work tree, or absolute. None: the work tree."""
    env: dict[str, str] = Field(default_factory=dict)
    """Added to the sandbox's own environment."""
    timeout: int = Field(default=DEFAULT_SECONDS, ge=1, le=MAX_SECONDS)
    """Seconds; the whole process group is killed then."""


class Interrupt(Frozen):
    """End the command that runs in the shell for a host process that is gone. It does not wait for its turn."""

    kind: Literal["interrupt"] = "interrupt"


class ReadBytes(Frozen):
    """Part of a file, as bytes."""

    kind: Literal["read_bytes"] = "read_bytes"
    path: str
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=1 << 20, ge=1, le=4 << 20)
    """Bytes."""


class WriteBytes(Frozen):
    """Write or append bytes to a file; its parent directories are made."""

    kind: Literal["write_bytes"] = "write_bytes"
    path: str
    content: bytes = Field(max_length=4 << 20)
    append: bool = False


# --- what the model asks of the program, answered without a sandbox -----------------------------------------


class Think(Frozen):
    """Write down a thought. Nothing happens; it stays in the record."""

    kind: Literal["think"] = "think"
    thought: str = Field(
        min_length=1, description="What you have understood, or what you will try next and why."
    )


class Finish(Frozen):
    """End the work and give an account of it. Call it alone, once the failing behaviour is gone and tests ran.

    The program takes the diff of the work tree, runs the repository's tests on it in a clean sandbox, and opens
    the pull request: do not commit, push or clean up for it. Files in the scratch directory are not part of it.
    """

    kind: Literal["finish"] = "finish"
    cause: str = Field(description="What was wrong and where, in one to three sentences.")
    change: str = Field(description="What was changed and why that mends it, in one to three sentences.")
    checked: str = Field(description="How it was checked: the commands and their results, before and after.")


class Malformed(Frozen):
    """A call that was not one: unknown tool, broken JSON, or arguments off the schema. Never run."""

    kind: Literal["malformed"] = "malformed"
    name: str
    arguments: str
    """As the model sent them, clipped."""
    problem: str


SandboxAction = Annotated[
    RunShell
    | SendInput
    | ViewFile
    | CreateFile
    | ReplaceText
    | InsertText
    | UndoEdit
    | Execute
    | Interrupt
    | ReadBytes
    | WriteBytes,
    Field(discriminator="kind"),
]
Action = Annotated[
    RunShell
    | SendInput
    | ViewFile
    | CreateFile
    | ReplaceText
    | InsertText
    | UndoEdit
    | Execute
    | ReadBytes
    | WriteBytes
    | Think
    | Finish
    | Malformed,
    Field(discriminator="kind"),
]


# --- observations -------------------------------------------------------------------------------------------


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
    """A file window or a directory listing, ready to read."""

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


class Noted(Frozen):
    """The program heard it."""

    kind: Literal["noted"] = "noted"
    text: str


class Failed(Frozen):
    """The action could not be done; the message says what to do instead."""

    kind: Literal["failed"] = "failed"
    reason: Literal[
        "malformed", "not_found", "refused", "ambiguous", "binary", "too_large", "lost", "exists", "io"
    ]
    message: str


Observation = Annotated[
    Ran | Viewed | Edited | Executed | Content | Written | Noted | Failed,
    Field(discriminator="kind"),
]

SANDBOX_ACTION: TypeAdapter[SandboxAction] = TypeAdapter(SandboxAction)
OBSERVATION: TypeAdapter[Observation] = TypeAdapter(Observation)
