"""Other tasks in the format of SWE-bench: JavaScript with an image, writing tests, and functions with given tests."""

import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import Message
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import CreateFile, ReplaceText
from tests.evaluation.evaluation_scenario import ADD, EvaluationScenario

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
JS_CODE = "exports.add = (a, b) => a - b;\n"
JS_TEST = (
    "require('node:test')('zero', () => require('node:assert').equal(require('../calc').add(2, 0), 2));\n"
)
JS_HIDDEN = (
    "require('node:test')('adds', () => require('node:assert').equal(require('../calc').add(2, 3), 5));\n"
)
PAGE_TEST = """\
import threading
import urllib.request
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class Buttons(HTMLParser):
    texts = ()

    def handle_data(self, data):
        if self.get_starttag_text() == "<button>" and data.strip():
            self.texts += (data,)


def test_the_button_says_send():
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/index.html") as page:
            buttons = Buttons()
            buttons.feed(page.read().decode())
        server.shutdown()
    assert buttons.texts == ("Send",)
"""
DONE = (RecordedTurn("Done.", Finish(cause="A typo.", change="A test.", testing="None.")),) * 6


class ImageHandler(BaseHTTPRequestHandler):
    """Serves one image."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PIXEL)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextlib.contextmanager
def image_server() -> Iterator[str]:
    """Yields the URL of an image."""
    with ThreadingHTTPServer(("127.0.0.1", 0), ImageHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/wrong.png"
        server.shutdown()


@pytest.mark.slow
async def test_a_javascript_issue_with_an_image_is_resolved(evaluation: EvaluationScenario) -> None:
    repository = evaluation.repository
    repository.git("rm", "-r", "--quiet", ".")
    package = {"name": "calc", "version": "1.0.0", "scripts": {"test": "node --test test/"}}
    files: dict[str, str | bytes] = {
        "package.json": json.dumps(package), "calc.js": JS_CODE, "test/calc.test.js": JS_TEST,
    }  # fmt: skip
    evaluation.base = repository.commit(files)
    with image_server() as url:
        evaluation.write_rows(
            evaluation.make_row(
                ADD,
                patch=evaluation.diff({"calc.js": JS_CODE.replace("a - b", "a + b")}),
                test_patch=evaluation.diff({"test/hidden.test.js": JS_HIDDEN}),
                FAIL_TO_PASS="[]",
                image_assets={"problem_statement": [url]},
            )
        )
        assert await evaluation.evaluate("--model", "gold") == 0
    (result,) = evaluation.read_results()[1].values()
    assert result.resolved
    trajectory = FileLogStore(evaluation.results.runs).read(RunId(result.run))
    first = next(event for event in trajectory if isinstance(event, Message))
    assert [image.data for image in first.images] == [PIXEL]


@pytest.mark.parametrize(
    ("check", "is_resolved"),
    [("calc.add(2, 3) == 5", True), ("calc.add(2, 0) == 2", False), ("False", False)],
)
@pytest.mark.slow
async def test_written_tests_must_fail_before_and_pass_after_the_reference_fix(
    check: str, is_resolved: bool, evaluation: EvaluationScenario
) -> None:
    evaluation.write_rows(evaluation.make_row(ADD))
    text = f"import calc\n\n\ndef test_it():\n    assert {check}\n"
    turns = (RecordedTurn("Write a test.", CreateFile(path="tests/test_new.py", content=text)), *DONE)
    async with RecordedModel(turns) as model:
        evaluation.monkeypatch.setenv("PATCHWRIGHT_MODEL_API_KEY", "sk-scripted-model")
        options = ("--model", "openai/scripted", "--base-url", model.base_url, "--write-tests")
        assert await evaluation.evaluate(*options) == 0
        assert "Do not fix this" in json.dumps(model.requests[0])
    (result,) = evaluation.read_results()[1].values()
    assert result.resolved is is_resolved


@pytest.mark.slow
async def test_three_functions_with_given_tests_are_fixed(evaluation: EvaluationScenario) -> None:
    assert (
        await evaluation.evaluate("--model", "gold", "--limit", "3", "--workers", "2", source="smoke:") == 0
    )
    assert [result.resolved for result in evaluation.read_results()[1].values()] == [True] * 3


@pytest.mark.slow
async def test_files_that_fit_the_issue_are_named_on_request(evaluation: EvaluationScenario) -> None:
    evaluation.write_rows(evaluation.make_row(ADD, problem_statement="calc: add() subtracts"))
    await evaluation.evaluate("--model", "empty", "--file-hints")
    (result,) = evaluation.read_results()[1].values()
    assert result.ranked_files == ("calc.py",)
    log = (evaluation.results.path / "runs" / result.run / "events.jsonl").read_text()
    assert "These files may be relevant, best match first: `calc.py`" in log
    assert evaluation.read_report()["models"][0]["recall_search"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(("button", "is_resolved"), [("Send", True), ("Cancel", False)])
async def test_a_task_on_a_local_site_is_scored_by_an_element_of_its_page(
    button: str, is_resolved: bool, evaluation: EvaluationScenario
) -> None:
    page = "<form><button>{}</button></form>\n"
    evaluation.base = evaluation.repository.commit({"index.html": page.format("OK")})
    evaluation.write_rows(
        evaluation.make_row(
            ADD,
            problem_statement="The button of the form must say Send",
            patch=evaluation.diff({"index.html": page.format("Send")}),
            test_patch=evaluation.diff({"tests/test_hidden_page.py": PAGE_TEST}),
            FAIL_TO_PASS="[]",
        )
    )
    edit = ReplaceText(path="index.html", old="OK", new=button)
    async with RecordedModel((RecordedTurn("Change the page.", edit), *DONE)) as model:
        evaluation.monkeypatch.setenv("PATCHWRIGHT_MODEL_API_KEY", "sk-scripted-model")
        options = ("--model", "openai/scripted", "--base-url", model.base_url)
        assert await evaluation.evaluate(*options) == 0
    (result,) = evaluation.read_results()[1].values()
    assert result.resolved is is_resolved
