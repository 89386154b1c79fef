"""Nested values are masked everywhere except in the fields whose values the program chooses."""

import json

from patchwright.resolver.events import AgentStopped, Checkpoint, Trajectory
from patchwright.resolver.masking import mask_trajectory, mask_value
from patchwright.resolver.secrets import SECRET_PLACEHOLDER, Secrets
from patchwright.resolver.tool_actions.unchecked_actions import CallTool
from tests.resolver.sample_runs import full_run, model_reply, run_of


def dump(trajectory: Trajectory) -> str:
    return json.dumps([json.loads(entry.model_dump_json()) for entry in trajectory.entries])


def test_secrets_in_every_depth_of_a_run_are_masked_and_all_else_stays() -> None:
    values = ("The brief of issue 7", "pytest -q", "What is the answer?", "evil.test", "tests/test_calc.py")
    run, secrets = full_run(), Secrets(values)
    expected = dump(run)
    for value in values:
        assert value in expected
        expected = expected.replace(value, SECRET_PLACEHOLDER)
    masked = mask_trajectory(run, secrets)
    assert dump(masked) == expected
    assert dump(mask_trajectory(masked, secrets)) == expected


def test_bytes_and_arguments_of_tools_are_masked() -> None:
    secrets = Secrets(["return a + b"])
    (patch,) = (
        event.patch for event in mask_trajectory(full_run(), secrets) if isinstance(event, Checkpoint)
    )
    assert b"return a + b" not in patch.diff and SECRET_PLACEHOLDER.encode() in patch.diff
    call = CallTool(name="t", arguments={"return a + b": [1, None, {"x": ["return a + b!", True]}]})
    (reply,) = mask_trajectory(run_of(model_reply("c", call)), secrets).replies()
    assert reply.calls[0].action == CallTool(
        name="t", arguments={SECRET_PLACEHOLDER: [1, None, {"x": [f"{SECRET_PLACEHOLDER}!", True]}]}
    )
    assert mask_value(("return a + b", 7), secrets) == (SECRET_PLACEHOLDER, 7)


def test_a_secret_that_is_also_a_word_of_the_program_keeps_the_log_readable() -> None:
    stopped = AgentStopped(reason="finished", detail="It finished.")
    (masked,) = mask_trajectory(run_of(stopped), Secrets(["finished"]))
    assert masked == AgentStopped(reason="finished", detail=f"It {SECRET_PLACEHOLDER}.")
