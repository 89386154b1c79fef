"""Reads what the output of a failed setup command says."""

import re

MAX_OUTPUT_TAIL = 300  # characters of a failed command's output in the bot's comment
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
