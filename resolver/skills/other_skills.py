"""Skills that are not in the repository: the operator's own, and the micro agents that Patchwright contains."""

from pathlib import Path

from patchwright.resolver.errors import SettingsError, describe_read_error
from patchwright.resolver.rendering.jinja_templates import read_template
from patchwright.resolver.skills.skills import RepoSkill, RepoSkills, parse_skill

SHIPPED_AGENTS = ("commit-writer", "typo-fixer")
"""Names of Patchwright's micro agents, which are files in `templates/agents/`."""


def load_operator_skills(directory: Path, owner: str) -> RepoSkills:
    """Loads the operator's skills for all repositories, and those for the repositories of one owner, which are in the
    subdirectory `owners/OWNER`. Raises SettingsError if the directory or a file cannot be used.
    """
    if not directory.is_dir():
        raise SettingsError(
            f"skills: the directory {directory} does not exist. Correct or remove the setting."
        )
    skills: list[RepoSkill] = []
    for place in (directory, directory / "owners" / owner):
        for file in sorted((*place.glob("*.md"), *place.glob("*/SKILL.md"))):
            path = file.relative_to(directory).as_posix()
            try:
                # The kind of a skill depends on its place in a repository.
                skill, problem = parse_skill(
                    f".agents/skills/{path}", (), file.read_text(), skills, "operator"
                )
            except (OSError, UnicodeDecodeError) as exc:
                skill, problem = None, describe_read_error(exc)
            if skill is None or problem:
                raise SettingsError(f"skills: {file} {problem}")
            skills.append(skill.model_copy(update={"path": path}))
    return RepoSkills(skills=tuple(skills))


def find_micro_agent(skills: RepoSkills, name: str) -> RepoSkill | None:
    """Returns the micro agent with this name: one of `skills`, or one that Patchwright contains."""
    own = next((agent for agent in skills.agents if agent.name == name), None)
    return own or (load_shipped_agent(name) if name in SHIPPED_AGENTS else None)


def load_shipped_agent(name: str) -> RepoSkill:
    """Returns one of Patchwright's micro agents. Raises SettingsError if the operator's own version is not usable."""
    path = f"agents/{name}.md.j2"
    skill, problem = parse_skill(path, (), read_template(path), (), "Patchwright")
    if skill is None or skill.kind != "agent":
        raise SettingsError(f"templates: {path} {problem or 'is not a micro agent'}")
    return skill.model_copy(update={"name": name})
