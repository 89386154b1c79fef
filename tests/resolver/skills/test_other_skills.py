"""The operator's skills, Patchwright's micro agents, and the MCP servers and tools that skills bring."""

from pathlib import Path

import pytest

from patchwright.resolver.errors import SettingsError
from patchwright.resolver.skills.other_skills import find_micro_agent, load_operator_skills
from patchwright.resolver.skills.skills import RepoSkills
from tests.resolver.skills.test_skills import found as found

SERVERS = "---\nname: x\nmcp_servers:\n  far: {url: 'https://a.test/mcp'}\ntools: [count]\n---\nUse it.\n"


async def test_a_repositorys_skill_brings_only_servers_that_run_in_the_sandbox(found) -> None:
    near = SERVERS.replace("{url: 'https://a.test/mcp'}", "{command: [python3, s.py]}")
    skills = await found({".agents/skills/a.md": near, ".agents/skills/b.md": SERVERS})
    first, second = skills.skills
    assert [(name, server.command) for name, server in first.mcp_servers.items()] == [
        ("far", ("python3", "s.py"))
    ]
    assert (second.mcp_servers, second.kind, second.text) == ({}, "always", "Use it.")
    assert first.tools == second.tools == ()
    assert skills.problems == (
        ".agents/skills/b.md brings no tools (MCP server far: only the operator can configure a `url`).",
    )


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ("{x: {}}", "MCP server x: set either `command` or `url`, and not both"),
        ("{x: {command: [a], cmd: b}}", "MCP server x: Extra inputs are not permitted"),
        ("[a]", "`mcp_servers` must be a mapping of at most 10 names to servers"),
        ("{1: {command: [a]}}", "`mcp_servers` must be a mapping of at most 10 names to servers"),
    ],
)
async def test_an_invalid_mcp_server_of_a_skill_is_reported(found, servers: str, problem: str) -> None:
    skills = await found({".agents/skills/a.md": f"---\nmcp_servers: {servers}\n---\nUse it.\n"})
    assert skills.problems == (f".agents/skills/a.md brings no tools ({problem}).",)


def test_the_operators_skills_bring_all_servers_and_tools_and_errors_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text(SERVERS)
    (skill,) = load_operator_skills(tmp_path, "acme").skills
    assert (skill.name, skill.kind, skill.author, skill.tools) == ("x", "always", "operator", ("count",))
    assert skill.mcp_servers["far"].url == "https://a.test/mcp"
    (tmp_path / "x.md").write_text("---\nagent: true\n---\nDo it.\n")
    with pytest.raises(SettingsError, match=r"x\.md is not a usable micro agent"):
        load_operator_skills(tmp_path, "acme")
    with pytest.raises(SettingsError, match="does not exist"):
        load_operator_skills(tmp_path / "none", "acme")


async def test_a_repositorys_micro_agent_replaces_the_shipped_one_of_its_name(found) -> None:
    shipped = find_micro_agent(RepoSkills(), "typo-fixer")
    assert (
        shipped is not None and shipped.edits and shipped.author == "Patchwright" and shipped.form is not None
    )
    own = "---\nname: typo-fixer\ndescription: Ours.\nagent: true\ninput: {}\noutput: {}\n---\nOurs.\n"
    agent = find_micro_agent(await found({".agents/skills/typo-fixer.md": own}), "typo-fixer")
    assert agent is not None and (agent.text, agent.edits) == ("Ours.", False)
    assert find_micro_agent(RepoSkills(), "codeact") is None
