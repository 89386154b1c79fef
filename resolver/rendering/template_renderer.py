"""Renders templates with the project's Jinja filters."""

import re
from typing import Any

from patchwright.resolver.conditions import summarize_conditions
from patchwright.resolver.rendering import filters, jinja_templates, subjects
from patchwright.resolver.settings.server_settings import is_loopback
from patchwright.runtime.egress_policy import DENIAL_MESSAGES
from patchwright.runtime.output_text import clip, clip_line


def render(template: str, **values: Any) -> str:
    """Renders a template. The result ends with exactly one line break."""
    environment = jinja_templates.get_environment()
    if "neutralize" not in environment.filters:
        environment.filters.update(
            build_subject=subjects.build_subject,
            clip=clip,
            clip_line=clip_line,
            code_block=filters.code_block,
            defuse=subjects.defuse,
            describe_condition=filters.describe_condition,
            escape_markdown=filters.escape_markdown,
            first_sentences=filters.first_sentences,
            format_duration=filters.format_duration,
            format_size=filters.format_size,
            format_test_counts=filters.format_test_counts,
            format_test_run=filters.format_test_run,
            compare_outcomes=filters.compare_outcomes,
            format_usage=filters.format_usage,
            inline_code=filters.inline_code,
            is_loopback=is_loopback,
            is_shortened=filters.is_shortened,
            list_names=filters.list_names,
            list_tests=filters.list_tests,
            neutralize=filters.neutralize,
            patch_test_label=filters.patch_test_label,
            strip_heading=subjects.strip_heading,
            summarize_conditions=summarize_conditions,
            surround=filters.surround,
            toml_string=filters.toml_string,
        )
        environment.globals["denial_messages"] = DENIAL_MESSAGES
    return environment.get_template(template).render(**values).strip() + "\n"


def render_reply(template: str, **values: Any) -> str:
    """Renders the template of a comment. Replaces several empty lines in a row with one."""
    return re.sub(r"\n{3,}", "\n\n", render(f"replies/{template}", **values))


def render_prompt(template: str, **values: Any) -> str:
    """Renders the template of a message to the model. The message does not end with a line break."""
    return render(f"prompts/{template}", **values).strip()
