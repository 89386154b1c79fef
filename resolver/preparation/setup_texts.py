"""The sentences about a setup that failed, and what they take from the output of a command."""

import re
from collections.abc import Mapping, Sequence

from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.runtime.egress_policy import DenialReason

MAX_OUTPUT_TAIL = 300  # characters of a failed command's output in the bot's comment


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


# What pip, uv and poetry write if they reject the version of Python.
_NEEDED_PYTHON = re.compile(
    r"requires a different Python: [\d.]+ not in '([^']{1,80})'"
    r"|incompatible with the project's Python requirement: `([^`]{1,80})`"
    r"|No interpreter found for Python ([<>=~!][^\n]{1,80}?) in "
    r"|Current Python version \([\d.]+\) is not allowed by the project \(([^)]{1,80})\)"
)


def find_needed_python(output: str) -> str | None:
    """Returns the versions of Python that the project needs, if an installer rejected the present one."""
    match = _NEEDED_PYTHON.search(output)
    return match[match.lastindex or 0] if match else None


def tail_lines(output: str) -> str:
    """Returns the end of a command's output, at most MAX_OUTPUT_TAIL characters. A line or word that would be
    incomplete at the start is left out.
    """
    if len(output) <= MAX_OUTPUT_TAIL:
        return output
    end = output[-MAX_OUTPUT_TAIL:]
    return end.partition("\n")[2] or end.partition(" ")[2] or end
