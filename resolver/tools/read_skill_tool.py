"""The `read_skill` tool, which returns the repository's own instructions."""

import difflib

from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.skills.skills import RepoSkills, split_pages
from patchwright.resolver.text.untrusted import strip_hidden
from patchwright.resolver.tool_actions.lookup_actions import ReadSkill
from patchwright.resolver.tools.tool import ActionTool, Tool
from patchwright.runtime.observations import ActionFailure, TextResult

MAX_RESULT_LENGTH = 20_000  # characters of one result


def build_skill_tools(skills: RepoSkills) -> tuple[Tool, ...]:
    """Returns the `read_skill` tool. The tool returns the skills that were loaded from the base commit, so
    later edits do not change its results.
    """

    async def read(action: ReadSkill) -> TextResult | ActionFailure:
        skill = skills.find(action.name)
        if skill is None:
            names = [known_skill.name for known_skill in skills.skills]
            suggestions = difflib.get_close_matches(action.name, names, n=3, cutoff=0.4)
            return ActionFailure(
                reason="not_found",
                message=render_prompt(
                    "unknown_skill.md.j2", name=action.name[:100], names=suggestions or names[:20]
                ),
            )
        text, _ = strip_hidden(skill.text)
        pages = list(split_pages(text, MAX_RESULT_LENGTH))
        start, page_text = next((page for page in reversed(pages) if page[0] <= action.line), pages[0])
        next_line = next((page[0] for page in pages if page[0] > start), None)
        return TextResult(
            text=render_prompt("skill.md.j2", skill=skill, text=page_text, start=start, next_line=next_line)
        )

    return (ActionTool(ReadSkill, read),)
