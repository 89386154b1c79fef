"""How a failed setup is reported."""

import pytest

from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.domain import Verdict
from patchwright.resolver.preparation.setup_output import MAX_OUTPUT_TAIL, find_needed_python, tail_lines
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.run_events import EnvironmentPrepared
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.viewer.run_html import render_run_html
from tests.resolver.sample_runs import RUN, run_of, started


def test_a_setup_failure_is_reported_in_one_sentence() -> None:
    assert render_reply(
        "setup_failed.md.j2", command="make", code=2, output="a\nb", refused_hosts={}
    ).strip() == ("`make` failed with exit code 2 (a b).")


def test_the_last_whole_lines_of_a_long_output_are_reported() -> None:
    error = "ERROR: No matching distribution found for nothing"
    assert tail_lines(f"Looking in links: {'x' * 400}\n{error}") == error
    assert tail_lines(f"{'word ' * 200}{error}").startswith("word word")
    assert tail_lines("x" * 400) == "x" * MAX_OUTPUT_TAIL
    assert tail_lines(error) == error


@pytest.mark.parametrize(
    "output",
    [
        "ERROR: Package 'x' requires a different Python: 3.11.2 not in '>=3.12'",
        "error: The requested interpreter resolved to Python 3.11.2, which is incompatible with the project's "
        "Python requirement: `>=3.12` (from `project.requires-python`)",
        "error: No interpreter found for Python >=3.12 in managed installations or search path",
        "Current Python version (3.11.2) is not allowed by the project (>=3.12).\nPlease change python executable",
    ],
    ids=["pip", "uv", "uv without a match", "poetry"],
)
def test_an_unsuitable_python_is_reported_with_what_an_operator_can_do(output: str) -> None:
    assert find_needed_python("no interpreter") is None
    needed = find_needed_python(f"one line\n{output}\n")
    assert needed == ">=3.12"
    assert render_reply("setup_python_mismatch.md.j2", needed=needed, present="3.11.2").strip() == (
        "The project needs Python >=3.12, but the image has Python 3.11.2. "
        "Set `image` or `language_images.python` to an image with a matching version."
    )


def test_setup_warnings_are_shown_in_the_pull_request_and_the_viewer() -> None:
    why = "`pip` failed with exit code 1 (Not available: gone)."
    run = run_of(
        started(),
        EnvironmentPrepared(commands=("pip",), was_cached=False, seconds=1, warnings=(f"@all: {why}",)),
    )
    assert run.run_started is not None
    untested = Verdict(kind="untested", reason="There are no tests.")
    body = reply_texts.render_pull_request_body(run.run_started.thread, untested, summarize_run(run))
    assert "setup continued after a step failed" in body and why in body and "@all" not in body
    assert "Not available: gone" in render_run_html(RUN, run, lambda delegate: None, Secrets([]))
