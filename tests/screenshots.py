"""Takes the screenshots of the docs: `script/capture screenshots [DIRECTORY]`.

Starts the server of the demo, and runs its sample issue and two of the tasks in tests/integration. Chromium shows the
dashboard afterwards, and while another run is active. GitHub is a fake server without pages, so the issue and the pull
request are drawn here from their texts on that server.
"""

import argparse
import asyncio
import base64
import html
import io
import json
import os
import re
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import markdown
from PIL import Image
from playwright.async_api import Browser, Page

from patchwright.demo.github import Issue
from patchwright.demo.recorded_model import RecordedCall, RecordedModel, RecordedTurn
from patchwright.demo.run import DemoSetup, run_server, set_up
from tests.resolver.recorded_model import read_replies
from tests.runtime.chromium_page import chromium

ROOT = Path(__file__).parent.parent
SAMPLE, TASKS = ROOT / "demo/sample", ROOT / "tests/integration"
RECORDINGS = {
    "acme/durations": (SAMPLE / "repository", SAMPLE / "issue.md", SAMPLE / "recording.json"),
    **{
        f"acme/{name}": (task / "workspace", task / "task.md", task / "recorded.jsonl")
        for name, task in {"notes": TASKS / "typos", "calendar": TASKS / "rename"}.items()
    },
}
"""By repository: the directory with its files, its issue, and the replies of the model."""
LIVE_TURN = 6  # index of the reply that an active run waits for
TIMEOUT = 300.0  # seconds for each wait; the first one includes building the image


class Recordings(RecordedModel):
    """Replies with the recording whose issue is in the prompt."""

    def __init__(self) -> None:
        self._by_title = {
            read_issue(issue)[0]: read_turns(recording) for _, issue, recording in RECORDINGS.values()
        }
        super().__init__((), key=secrets.token_hex(16), on_request=self._wait)
        self.key = self._key or ""
        self.is_waiting, self.is_released = asyncio.Event(), asyncio.Event()
        self.is_released.set()

    def select_turns(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[RecordedTurn]:
        prompt = str(messages)
        return next(turns for title, turns in self._by_title.items() if title in prompt)

    async def _wait(self, turn: int, request: dict[str, Any]) -> None:
        if turn >= LIVE_TURN and not self.is_released.is_set():
            self.is_waiting.set()
            await self.is_released.wait()


def read_issue(path: Path) -> tuple[str, str]:
    """Returns the title and the text of a recording's issue."""
    title, _, body = path.read_text().partition("\n")
    return title.lstrip("# "), body.strip()


def read_turns(path: Path) -> list[RecordedTurn]:
    """Returns the replies of the demo, or those of an integration test."""
    if path.suffix == ".json":
        return [RecordedTurn.model_validate(turn) for turn in json.loads(path.read_text())]
    return [
        RecordedTurn(
            reply.text,
            calls=[RecordedCall(name=call.name, arguments=call.arguments) for call in reply.tool_calls],
        )
        for reply in read_replies(path)
    ]


@dataclass(frozen=True)
class Stage:
    """The server of the demo, and its dashboard in Chromium."""

    setup: DemoSetup
    model: Recordings
    browser: Browser
    url: str
    token: str

    async def open_issue(self, name: str, recording: str) -> Issue:
        """Creates the repository with an issue, and labels the issue."""
        files, issue_file, _ = RECORDINGS[recording]
        fake_github, (title, body) = self.setup.github, read_issue(issue_file)
        repository = fake_github.create_repository(name, files=files, permissions={"maintainer": "write"})
        fake_github.install_app(fake_github.apps[0], repository)
        issue = fake_github.create_issue(repository, title=title, body=body, by="reporter")
        await fake_github.add_label(issue, "fix-me", by="maintainer")
        return issue

    @asynccontextmanager
    async def dashboard(
        self, width: int, height: int, scheme: Literal["light", "dark"] = "light"
    ) -> AsyncIterator[Page]:
        """Opens the list of runs as the operator."""
        page = await self.browser.new_page(
            base_url=self.url, viewport={"width": width, "height": height}, color_scheme=scheme
        )
        await page.goto("/login")
        await page.get_by_label("Operator token").fill(self.token)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("heading", name="Runs", exact=True).wait_for()
        yield page
        await page.close()

    async def wait_for_list(self, ready: Callable[[Page], Awaitable[bool]]) -> None:
        """Reloads the list of runs until it is as expected."""
        async with self.dashboard(1280, 900) as page, asyncio.timeout(TIMEOUT):
            while not await ready(page):
                await asyncio.sleep(0.5)
                await page.reload()


@asynccontextmanager
async def open_stage(sandbox: str, data: Path) -> AsyncIterator[Stage]:
    token = secrets.token_hex(16)
    async with Recordings() as model, set_up(data, os.environ) as setup, chromium() as browser:
        environment = {
            **setup.server_env,
            "PATCHWRIGHT_OPERATOR_TOKEN": token,
            "PATCHWRIGHT_MAX_CONCURRENT_JOBS": "1",
            "PATCHWRIGHT_MODEL_BASE_URL": model.base_url,
            "PATCHWRIGHT_MODEL_API_KEY": model.key,
        }
        setup = replace(setup, server_env=environment)
        async with run_server(setup, sandbox) as url:
            setup.github.add_webhook(f"{url}/webhook", environment["PATCHWRIGHT_WEBHOOK_SECRET"])
            yield Stage(setup, model, browser, url, token)


async def take_screenshots(directory: Path, sandbox: str) -> None:
    """Writes the pictures below a directory."""
    with tempfile.TemporaryDirectory(prefix="patchwright-") as data:
        async with open_stage(sandbox, Path(data)) as stage:
            fake_github = stage.setup.github
            issues = [await stage.open_issue(name, name) for name in ("acme/notes", "acme/calendar")]
            await fake_github.add_label(stage.setup.issue, "fix-me", by="maintainer")
            await stage.wait_for_list(lambda page: has_states(page, published=3))
            save(directory / "demo.png", await picture_of_demo(stage))
            for issue in (stage.setup.issue, issues[0]):
                await fake_github.close_thread(issue.repo.pulls[0], by="maintainer", merged=True)
            stage.model.is_released.clear()
            await stage.open_issue("acme/timers", "acme/durations")
            async with asyncio.timeout(TIMEOUT):
                await stage.model.is_waiting.wait()
            await stage.wait_for_list(lambda page: has_states(page, published=3, running=1))
            save(directory / "dashboard.png", await picture_of_list(stage))
            save(directory / "run.png", await picture_of_run(stage))
            stage.model.is_released.set()
            await stage.wait_for_list(lambda page: has_states(page, published=4))


async def has_states(page: Page, **counts: int) -> bool:
    """Returns True if the list has this number of runs in each of the states."""
    shown = [await page.locator(f"td.state .{state}").count() for state in counts]
    return shown == list(counts.values())


async def picture_of_demo(stage: Stage) -> bytes:
    """Draws the issue and the pull request next to the page of the run."""
    issue, (pull,) = stage.setup.issue, stage.setup.repository.pulls
    async with stage.dashboard(760, 1300) as page:
        await page.get_by_role("row", name="acme/durations#1").get_by_role("link").click()
        await page.get_by_text("Pull request #2 is open.").wait_for()
        run = await page.screenshot()
    content = PAGE.format(
        issue=f"<h1>{html.escape(issue.title)} <b class=label>fix-me</b></h1>{render(issue.body or '')}",
        pull=f"<h1><b class=open>Open</b> {html.escape(pull.title)}</h1>{render(pull.body or '')}",
        run=data_url(run),
    )
    return await draw(stage.browser, content)


async def picture_of_list(stage: Stage) -> bytes:
    async with stage.dashboard(1180, 600) as page:
        return await page.screenshot(full_page=True)


async def picture_of_run(stage: Stage) -> bytes:
    """Shows the active run."""
    async with stage.dashboard(1180, 890, "dark") as page:
        await page.get_by_role("row", name="acme/timers#1").get_by_role("link").click()
        await page.get_by_text("Live: new entries appear below.").wait_for()
        await page.get_by_text(f"Step {LIVE_TURN}", exact=True).wait_for()
        return await page.screenshot()


async def draw(browser: Browser, content: str) -> bytes:
    page = await browser.new_page(viewport={"width": 1500, "height": 600})
    await page.set_content(content, wait_until="load")
    picture = await page.screenshot(full_page=True)
    await page.close()
    return picture


def render(text: str) -> str:
    """Renders a text as GitHub does, as far as our texts need it. Folded parts stay folded."""
    folded = re.sub(
        r"<details><summary>(.*?)</summary>.*?</details>", r"<p class=fold>▸ \1</p>", text, flags=re.DOTALL
    )
    with_lists = re.sub(r"^(?!- )(.+)\n(?=- )", r"\1\n\n", folded, flags=re.MULTILINE)
    return markdown.markdown(with_lists, extensions=["fenced_code", "tables"])


def data_url(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def save(path: Path, picture: bytes) -> None:
    """Saves a screenshot with 256 colors, in about a third of its size."""
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path)


PAGE = """<!doctype html><meta charset="utf-8">
<style>
  body {{ margin: 0; padding: 20px; box-sizing: border-box; width: 1500px; background: #eceef4; color: #1b1f27;
    display: grid; grid-template-columns: 1fr 740px; gap: 20px; font: 16px/1.45 "DejaVu Sans", sans-serif }}
  h2 {{ font-size: 17px; color: #4b3cb5; margin: 0 0 8px }}
  article {{ background: #fff; border: 1px solid #d5d9e2; border-radius: 10px; padding: 4px 20px; margin-bottom: 20px }}
  h1 {{ font-size: 21px; margin: 14px 0 }}
  b.label, b.open {{ font-size: 14px; border-radius: 12px; padding: 2px 12px; color: #fff; vertical-align: 2px }}
  b.label {{ background: #5b37b7 }} b.open {{ background: #1f7a3f }}
  code {{ font: 13px "DejaVu Sans Mono", monospace; background: #eef0f4; border-radius: 4px; padding: 2px 4px }}
  pre {{ background: #eef0f4; padding: 10px 12px; border-radius: 6px }} pre code {{ padding: 0 }}
  p, ul {{ margin: 10px 0 }} .fold {{ border-top: 1px solid #e4e7ee; padding-top: 8px; color: #4a5263 }}
  .run {{ display: flex; flex-direction: column }}
  .run div {{ flex: 1; border: 1px solid #d5d9e2; border-radius: 10px; overflow: hidden; margin-bottom: 20px;
    background: url("{run}") top / 100% no-repeat }}
</style>
<div><h2>1. Label an issue</h2><article>{issue}</article>
<h2>2. Get a pull request that your tests have checked</h2><article>{pull}</article></div>
<div class="run"><h2>3. Look at the run, live or later</h2><div></div></div>
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="script/capture screenshots", description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT / "docs")
    parser.add_argument("--sandbox", choices=("docker", "local"), default="docker")
    options = parser.parse_args(arguments)
    asyncio.run(take_screenshots(options.directory, options.sandbox))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
