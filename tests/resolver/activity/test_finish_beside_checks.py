"""A `finish` call in the same reply as the last checks, and what a new test makes unnecessary."""

import pytest

from patchwright.resolver.activity.finish_checks import find_missing_steps, was_sent_back
from patchwright.resolver.domain import Patch
from patchwright.resolver.events import Checkpoint, ModelReply, ReplyUsage, ToolCall, ToolResult
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ActionFailure, ShellResult
from tests.resolver.activity.test_finish_checks import NOT_REPRODUCED, NOT_TESTED
from tests.resolver.trajectories import run


@pytest.mark.parametrize(
    ("command", "code", "output", "failed"),
    [
        ("pytest -q", 0, "3 passed", False),
        ("pytest -q", 1, "", True),
        ("pytest -q", 127, "", True),
        ("pytest -q | tail -3", 0, "1 failed, 2 passed", True),
        ("grep -rn left src", 1, "", False),
        ("node /tmp/r.js", 0, "TypeError: as the issue expects", False),
    ],
)
def test_a_finish_call_beside_the_last_checks_counts_if_they_succeed(
    command: str, code: int, output: str, failed: bool
) -> None:
    calls = (
        ToolCall(id="a", action=RunShell(command=command)),
        ToolCall(id="b", action=Finish(cause="c", change="c", testing="c")),
    )
    reply = ModelReply(thought="", calls=calls, usage=ReplyUsage(model="m"))
    result = ToolResult(
        call_id="a", observation=ShellResult(output=output, exit_code=code, cwd="/w", seconds=1)
    )
    missing = find_missing_steps(run(reply, result), None)
    assert missing == (
        ("`finish` was called in the same reply as `run_shell`, which failed.",) if failed else ()
    )
    refused = ToolResult(call_id="b", observation=ActionFailure(reason="refused", message="Not finished yet"))
    assert was_sent_back(run(reply, result, refused)) is not failed


def test_a_patch_with_a_test_needs_no_reproduction() -> None:
    diff = b"diff --git a/tests/test_a.py b/tests/test_a.py\n@@ -1 +1 @@\n-a\n+b\n"
    edit = Checkpoint(patch=Patch(base_sha="b" * 40, diff=diff))
    assert find_missing_steps(run(edit), None) == (NOT_TESTED,)
    assert find_missing_steps(run(edit), None, can_run_tests=False) == (NOT_REPRODUCED,)
