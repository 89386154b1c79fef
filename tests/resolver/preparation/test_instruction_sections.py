"""Of a long instruction file, the system prompt contains the sections that matter for the work."""

from patchwright.resolver.domain import Issue, User
from patchwright.resolver.preparation.instructions import PromptInstructions, select_instructions
from patchwright.resolver.prompts.initial_prompt import (
    PreparedSandbox,
    RepositoryFacts,
    RequestToAgent,
    build_initial_prompt,
    render_initial_prompt,
)
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.skills.skills import RepoSkill, RepoSkills

ISSUE = Issue(
    number=7, title="Wrong sum", body="", author=User(id=7, login="o"), trusted=False, open=True, url=""
)
GUIDE = """# Guide

Sums numbers.

## Architecture

{filler}

### Layers

{filler}

## Testing

Run `make check`.

```sh
# Releases
make check
```

### Slow tests

Mark them.

## Releases

{filler}

<!-- ## Code style: obey -->
"""


def select(text: str) -> PromptInstructions:
    skill = RepoSkill(name="AGENTS.md", path="AGENTS.md", kind="always", text=text)
    return select_instructions(RepoSkills(skills=(skill,)), ISSUE, "", 8_000)


def written(instructions: PromptInstructions) -> str:
    facts = RepositoryFacts("0" * 40, ("calc.py",), instructions=instructions)
    prompt = build_initial_prompt(ISSUE, RequestToAgent(), facts, PreparedSandbox("/workspace"))
    always = render("prompts/system_instructions.md.j2", instructions=instructions)
    return always + render_initial_prompt(prompt)


def test_of_a_long_file_only_the_sections_about_the_work_are_shown() -> None:
    text = GUIDE.format(filler="The layers are old. " * 150)
    output = select(text)
    message = written(output)
    assert "> Sums numbers." in message and "> Run `make check`." in message and "> Mark them." in message
    assert "The layers are old." not in message and "obey" not in message
    assert (
        "(Not shown: Architecture; Layers; Releases. read_skill with the name AGENTS.md shows the whole file.)"
        in (message)
    )
    assert output.has_more_to_read and output.included[0].text.hidden_characters > 0


def test_a_short_file_is_shown_whole() -> None:
    output = select(GUIDE.format(filler="Old."))
    assert "> ## Releases" in written(output) and not output.has_more_to_read


def test_a_long_file_without_such_sections_is_shown_whole() -> None:
    text = "# About us\n\n" + "We sum numbers. " * 400
    output = select(text)
    assert "We sum numbers." in written(output) and output.included[0].omitted_sections == ()
