"""Tool calls that wait for the approval of a person, and what the person decides."""

import hashlib
import json
import re
from datetime import datetime, timedelta

from patchwright.resolver.command_parser import Request
from patchwright.resolver.text.untrusted import escape_invisible
from patchwright.resolver.tool_actions.unchecked_actions import CallTool
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.tool_action import ToolAction

DECISION_TIMEOUT = timedelta(days=1)
"""After this time, a call that nobody has approved is rejected, and the run continues."""
_ARGUMENTS = re.compile(
    r"(?:(?P<code>[0-9a-f]{8})(?![\w/.-]))?[\s,:;.]*(?P<similar>all\s+like\s+this\b)?[\s,:;.]*", re.IGNORECASE
)


class ConfirmationRequest(FrozenModel):
    """A call that runs only if a person approves it. The log contains the call, without a result."""

    code: str
    """Identifies the call. A decision with another code has no effect on it."""
    call: str
    """The exact call for people, with visible control characters."""
    risk: str
    reason: str
    """Why the call is risky, in a few words."""
    similar: str
    """Equal for calls that are so similar that a person can approve them together."""
    expires_at: datetime | None = None
    """Time in UTC when the call is rejected if nobody has decided; None if there is no limit."""


class CallDecision(FrozenModel):
    """A person's decision about a call that waits for approval."""

    code: str
    approved: bool
    similar: str = ""
    """Similar calls are approved for the rest of the run, too. Empty if only this call is approved."""


class ConfirmationRequired(Exception):
    """Raised instead of executing a call that has to wait for the approval of a person."""

    def __init__(self, request: ConfirmationRequest) -> None:
        super().__init__(request.reason)
        self.request = request


class DecisionText(FrozenModel):
    """The text that follows `approve` or `reject` in a comment."""

    code: str
    """The code of the call; empty if the comment names none."""
    includes_similar: bool
    remark: str


def parse_decision(request: Request) -> DecisionText:
    """Parses the text of the command `approve` or `reject`."""
    match = _ARGUMENTS.match(request.remainder)
    assert match is not None, "the pattern matches every text"
    includes_similar = request.verb == "approve" and bool(match["similar"])
    end = match.end() if includes_similar or not match["similar"] else match.start("similar")
    return DecisionText(
        code=(match["code"] or "").lower(),
        includes_similar=includes_similar,
        remark=request.remainder[end:].strip(),
    )


def make_call_code(call_id: str, action: ToolAction) -> str:
    """Returns the code of a call. It differs for another call, even with the same arguments."""
    return hashlib.sha256(f"{call_id}\0{action.model_dump_json()}".encode()).hexdigest()[:8]


def render_exact_call(action: ToolAction) -> str:
    """Returns the tool and all arguments of a call as people read it. Invisible characters are visible."""
    name = action.name if isinstance(action, CallTool) else type(action).model_fields["kind"].default
    arguments = (
        action.arguments
        if isinstance(action, CallTool)
        else action.model_dump(mode="json", exclude={"kind"}, exclude_defaults=True)
    )
    if len(arguments) == 1 and isinstance(text := next(iter(arguments.values())), str):
        return escape_invisible(f"{name}: {text}")
    return escape_invisible(f"{name}: {json.dumps(arguments, indent=2, ensure_ascii=False)}")
