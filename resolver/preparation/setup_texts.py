"""The sentences about a setup that failed."""

from collections.abc import Mapping, Sequence

from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.runtime.egress_policy import DenialReason


def render_setup_failed(
    command: str, code: int | None, output: str, refused_hosts: Mapping[str, DenialReason]
) -> str:
    """Explains why a setup command failed. `code` is None if the command was stopped. `output` is the end of
    its output.
    """
    return render_reply(
        "setup_failed.md.j2", command=command, code=code, output=output, refused_hosts=refused_hosts
    ).strip()


def render_setup_python_mismatch(needed: str, present: str) -> str:
    """Explains that the image has another version of Python than the project needs."""
    return render_reply("setup_python_mismatch.md.j2", needed=needed, present=present).strip()


def render_setup_missing_programs(programs: Sequence[str]) -> str:
    """Explains that the image lacks programs that the setup needs."""
    return render_reply("setup_missing_programs.md.j2", programs=programs).strip()
