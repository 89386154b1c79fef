"""The skills as the model reads them, against the functions themselves."""

import inspect

import runtime.skills as skills
from resolver import prose
from resolver.preparing.skill_docs import WHY, skill_docs


def test_each_skill_is_told_as_it_is_defined() -> None:
    told = skill_docs()
    assert [doc.signature.partition("(")[0] for doc in told] == skills.__all__
    for doc in told:
        function = getattr(skills, doc.signature.partition("(")[0])
        defined = str(inspect.signature(function)).replace("'", "").replace(" ", "")
        assert doc.signature.partition("(")[2].replace("'", "").replace(" ", "") == defined[1:]
        said = " ".join((inspect.getdoc(function) or "").split())
        assert said.startswith(f"{doc.description} {WHY}")


def test_the_system_prompt_tells_them_where_there_is_a_python_session() -> None:
    with_python = prose.system("/w", "/tmp", "docker", "none", ("kernel",))
    without = prose.system("/w", "/tmp", "docker", "none", ("browser",))
    for doc in skill_docs():
        assert f"- `{doc.signature}` {doc.description}\n" in with_python
    assert "parse_pdf" not in without
