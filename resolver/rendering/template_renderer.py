"""Renders templates with the project's Jinja filters."""

import re
from inspect import isfunction
from typing import Any

from patchwright.resolver.conditions import summarize_conditions
from patchwright.resolver.rendering import filters, jinja_templates, subjects
from patchwright.resolver.settings.server_settings import is_loopback
from patchwright.runtime.egress_policy import DENIAL_MESSAGES
from patchwright.runtime.output_text import clip


def render(template: str, **values: Any) -> str:
    """Renders a template. The result ends with exactly one line break."""
    environment = jinja_templates.get_environment()
    if "neutralize" not in environment.filters:
        environment.filters.update(
            {name: each for name, each in vars(filters).items() if isfunction(each) and name[0] != "_"},
            build_subject=subjects.build_subject,
            clip=clip,
            defuse=subjects.defuse,
            is_loopback=is_loopback,
            strip_heading=subjects.strip_heading,
            summarize_conditions=summarize_conditions,
        )
        environment.globals["denial_messages"] = DENIAL_MESSAGES
    return environment.get_template(template).render(**values).strip() + "\n"


def render_reply(template: str, **values: Any) -> str:
    """Renders the template of a comment. Replaces several empty lines in a row with one."""
    return re.sub(r"\n{3,}", "\n\n", render(f"replies/{template}", **values))


def render_prompt(template: str, **values: Any) -> str:
    """Renders the template of a message to the model. The message does not end with a line break."""
    return render(f"prompts/{template}", **values).strip()
