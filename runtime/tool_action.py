"""The base classes of the actions that a model may request, and how a call is described to people."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from patchwright.runtime.features import SandboxFeature
from patchwright.runtime.frozen_model import FrozenModel

CallKind = Literal["thought", "command", "edit", "read", "browse", "plan", "tool", "end"]


class PlanItem(FrozenModel):
    """One item of the plan."""

    text: str = Field(min_length=1, max_length=300, description="The task, in a few words.")
    status: Literal["open", "doing", "done", "dropped"] = "open"


@dataclass(frozen=True, slots=True)
class CallText:
    """A text of a call that the viewer shows below the title."""

    label: str
    text: str
    is_code: bool = False
    shown: Literal["always", "if_long", "if_failed"] = "always"
    """`if_long`: only if the title does not contain the whole text. `if_failed`: only if the call failed, because
    the result of a successful call contains the text.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDescription:
    """How a call is described wherever people see a run: terminal, comments, dashboard and viewer."""

    title: str
    """The call as one line. Readers of the line clip it."""
    kind: CallKind = "tool"
    """Icon of the call in the viewer, whose readers can filter by it."""
    verb: str = "thinking"
    """What the run is doing during the call, for example "running". `target` completes the sentence."""
    target: str = ""
    """The command, path or question of the call. If it is empty, it is the same as `code`."""
    label: str = ""
    """What distinguishes the call from the others of the same reply. If it is empty, it is the same as `target`."""
    code: str = ""
    """The command or code that the title ends with. If it is long, it is shown in full below a clipped title."""
    heading: str = ""
    """The title in the viewer, if `texts` contain a part of the title."""
    texts: tuple[CallText, ...] = ()
    checklist: tuple[PlanItem, ...] = ()
    shell_command: str = ""
    """The command, whose risk is rated."""
    written_path: str = ""
    """The file that the call writes, whose risk is rated."""
    risk_reason: str = ""
    """Why the risk is medium; empty if it is low, or if the command or the path is rated."""


class ToolAction(FrozenModel):
    """Base class of the actions that a model may request.

    A subclass defines a tool: its docstring and fields are what the model reads, and `describe` is what people read.
    """

    is_edit: ClassVar[bool] = False
    """True if the tool edits a file. Such tools are missing or blocked where files must not change."""
    may_change_files: ClassVar[bool] = False
    """True if the work tree is saved after a call."""
    is_repeatable: ClassVar[bool] = False
    """True if an interrupted call can be sent again, because the sandbox runs each call only once and keeps its
    result.
    """
    required_feature: ClassVar[SandboxFeature | None] = None
    """The feature of the sandbox without which the tool is not offered."""
    ends_run: ClassVar[bool] = False
    """True if the agent stops after an accepted call."""

    @abstractmethod
    def describe(self) -> CallDescription:
        """Returns how this call is described to people."""


class RecordedTool(ToolAction):
    """Base class of the tools that the sandbox executes itself. The sandbox keeps the result of each call."""

    is_repeatable: ClassVar[bool] = True


class EditTool(RecordedTool):
    """Base class of the tools that edit one file."""

    is_edit: ClassVar[bool] = True
    may_change_files: ClassVar[bool] = True

    def describe_edit(self, edit: str, path: str, *texts: CallText, verb: str = "writing") -> CallDescription:
        return CallDescription(
            kind="edit", title=f"{edit} {path}", verb=verb, target=path, texts=texts, written_path=path
        )
