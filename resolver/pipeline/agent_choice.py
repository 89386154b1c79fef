"""Chooses the agent and the tools of a run by their names."""

import asyncio
import difflib
from collections.abc import Sequence
from importlib.util import find_spec

from patchwright.resolver.command_parser import may_be_sentence
from patchwright.resolver.domain import Job
from patchwright.resolver.errors import UnknownName
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run.repo_config import read_repo_config
from patchwright.resolver.settings.run_settings import CODEACT, McpServer
from patchwright.resolver.settings.settings import RepoConfig, Settings
from patchwright.resolver.skills.other_skills import SHIPPED_AGENTS, find_micro_agent, load_operator_skills
from patchwright.resolver.skills.skills import RepoSkill, RepoSkills, load_skills


async def choose_agent(job: Job, workspace: Workspace, deps: RunDependencies) -> str:
    """Returns the name of the agent that the requester, the repository, or the operator chose, in this order. A request
    such as "use pathlib: ..." chooses no agent if there is none with such a name.

    Raises UnknownName if there is no such agent, or if the repository's file names a tool that it may not use. Raises
    WorkspaceError if the repository cannot be read.
    """
    config = (await read_repo_config(workspace.config_source)).config
    choose_tools(config, deps.settings)
    name = job.request.options.agent or config.agent or deps.settings.agent
    if name == CODEACT or name in deps.agents:
        return name
    skills = await load_run_skills(job, workspace, deps.settings)
    if (agent := find_micro_agent(skills, name)) is None:
        micro_agents = {*SHIPPED_AGENTS, *(skill.name for skill in skills.agents)}
        known = (CODEACT, *sorted({*deps.agents, *micro_agents}))
        is_asked = job.request.options.agent is not None
        if is_asked and may_be_sentence(job.command, name) and not difflib.get_close_matches(name, known):
            return await choose_agent(job.model_copy(update={"command": ""}), workspace, deps)
        raise _unknown_name("agent", name, known)
    if not agent.edits and job.request.command.task != "explain":
        raise UnknownName(render_reply("agent_cannot_edit.md.j2", name=name).strip())
    return name


async def load_run_skills(job: Job, workspace: Workspace, settings: Settings) -> RepoSkills:
    """Returns the skills of the operator and of the repository. Raises SettingsError and WorkspaceError."""
    operators = None
    if settings.skills is not None:
        operators = await asyncio.to_thread(load_operator_skills, settings.skills, job.repo.owner)
    return await load_skills(workspace.config_source, operators)


def choose_tools(config: RepoConfig, settings: Settings) -> tuple[str, ...]:
    """Returns the names of the installed tools that the agent gets. Raises UnknownName."""
    if config.tools is None:
        return settings.tools
    for name in config.tools:
        if name not in settings.tools:
            raise _unknown_name("tool", name, settings.tools)
    return tuple(dict.fromkeys(config.tools))


def choose_mcp_servers(active: Sequence[RepoSkill], settings: Settings) -> dict[str, McpServer]:
    """Returns the MCP servers of the settings, and those of the skills whose text is in the first message."""
    # The operator may not have installed `mcp`. That must not stop the runs of a repository with such a skill.
    has_library = find_spec("mcp") is not None
    usable = (skill for skill in active if has_library or skill.author == "operator")
    servers = {name: server for skill in usable for name, server in skill.mcp_servers.items()}
    return servers | settings.mcp_servers


def _unknown_name(kind: str, name: str, known: Sequence[str]) -> UnknownName:
    suggestion = difflib.get_close_matches(name, known, n=1)
    text = render_reply("unknown_name.md.j2", kind=kind, name=name, known=known, suggestion=suggestion)
    return UnknownName(text.strip())
