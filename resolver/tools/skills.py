"""The tool that gives the repository's own instructions."""

import difflib

from resolver import prose
from resolver.actions import ReadSkill
from resolver.preparing.skills import Skills, pages
from resolver.tools.tool import ActionTool, Tool
from resolver.words.quotation import visible
from runtime.observations import Failed, Viewed

PAGE = 20_000  # characters of one answer


def skill_tools(skills: Skills) -> tuple[Tool, ...]:
    """`read_skill`, answered from what was found at the base commit: nothing that was edited since counts."""

    async def read(action: ReadSkill) -> Viewed | Failed:
        skill = skills.named(action.name)
        if skill is None:
            names = [one.name for one in skills.skills]
            near = difflib.get_close_matches(action.name, names, n=3, cutoff=0.4)
            return Failed(
                reason="not_found", message=prose.no_such_skill(action.name[:100], near or names[:20])
            )
        text, _ = visible(skill.text)
        found = list(pages(text, PAGE))
        start, piece = next((page for page in reversed(found) if page[0] <= action.line), found[0])
        following = next((page[0] for page in found if page[0] > start), None)
        return Viewed(text=prose.skill(skill, piece, start, following))

    return (ActionTool(ReadSkill, read),)
