"""Micro agents: a file of the repository describes one task, what goes into it and what comes out; each is a tool.

The files are read from the base commit, as all skills are: nothing that was edited since counts.
"""

import json
import logging
from collections.abc import Collection, Sequence
from typing import Any, Literal

from resolver.actions import CallTool, Reported
from resolver.browsing import delegate_prose
from resolver.llm.model import ToolSpec
from resolver.preparing.skills import Skill
from resolver.schemas import off
from resolver.tools.investigate import Investigating
from runtime.observations import Failed

logger = logging.getLogger(__name__)

MAX_INPUT = 10_000  # characters of JSON; as long as a question to an investigator may be


class MicroAgent:
    """An investigator with a task of its own, as a tool that takes its input and gives its output."""

    kind: Literal["call_tool"] = "call_tool"

    def __init__(self, skill: Skill, investigating: Investigating) -> None:
        assert skill.form is not None
        self._skill, self._form = skill, skill.form
        self._investigating = investigating
        self.spec = ToolSpec(
            name=f"ask_{skill.name}",
            description=delegate_prose.micro_agent(skill),
            parameters=self._form.input,
        )

    def parse(self, arguments: dict[str, Any]) -> CallTool:
        if problem := off(arguments, self._form.input):
            raise ValueError(problem)
        if (length := len(_task(arguments))) > MAX_INPUT:
            raise ValueError(f"the arguments are {length:,} characters long; {MAX_INPUT:,} are the limit")
        return CallTool(name=self.spec.name, arguments=arguments)

    async def answer(self, action: CallTool) -> Reported | Failed:
        """What it reports. Raises as `Investigating.ask`."""
        return await self._investigating.ask(action, (_task(action.arguments),), self._skill)


def micro_agents(
    skills: Sequence[Skill], investigating: Investigating, taken: Collection[str]
) -> tuple[MicroAgent, ...]:
    """A tool for each of the repository's micro agents; one with the name of another tool is left out, and told."""
    found = []
    for tool in (MicroAgent(skill, investigating) for skill in skills):
        if tool.spec.name in taken:
            logger.warning("micro agent left out: a tool has its name", extra={"tool": tool.spec.name})
        else:
            found.append(tool)
    return tuple(found)


def _task(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False, allow_nan=False)
