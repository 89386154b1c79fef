"""The documentation of the skills, compared with the functions themselves."""

import inspect

import patchwright.runtime.skills as skills
from patchwright.resolver.prompts.system_prompt import SandboxDescription, render_system_prompt
from patchwright.resolver.skills.skill_docs import MAINTAINER_NOTE, load_skill_docs


def test_each_skill_is_documented_as_defined() -> None:
    docs = load_skill_docs()
    assert [doc.signature.partition("(")[0] for doc in docs] == skills.__all__
    for doc in docs:
        function = getattr(skills, doc.signature.partition("(")[0])
        defined = str(inspect.signature(function)).replace("'", "").replace(" ", "")
        assert doc.signature.partition("(")[2].replace("'", "").replace(" ", "") == defined[1:]
        text = " ".join((inspect.getdoc(function) or "").split())
        assert text.startswith(f"{doc.description} {MAINTAINER_NOTE}")


def test_the_system_prompt_lists_skills_if_there_is_a_python_session() -> None:
    with_python = render_system_prompt(SandboxDescription("/w", "/tmp", "docker", "none", ("kernel",)))
    without = render_system_prompt(SandboxDescription("/w", "/tmp", "docker", "none", ("browser",)))
    for doc in load_skill_docs():
        assert (f"- `{doc.signature}` {doc.description}\n" in with_python) == doc.is_reader
        assert doc.name in with_python
    assert [doc.name for doc in load_skill_docs() if doc.is_reader][::3] == [
        "parse_pdf",
        "parse_pptx",
        "parse_video",
    ]
    assert "parse_pdf" not in without


def test_the_system_prompt_offers_image_functions_only_with_a_model_that_accepts_images() -> None:
    for has_vision in (True, False):
        prompt = render_system_prompt(
            SandboxDescription("/w", "/tmp", "docker", features=("kernel",)), has_vision=has_vision
        )
        assert ("parse_image(" in prompt, "parse_video(" in prompt) == (has_vision, has_vision)
        assert "parse_audio(" in prompt and "parse_pdf(" in prompt
