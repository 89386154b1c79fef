"""Obstacles to hosting and trusting such a bot: complaints 13, 14, 15, and 23."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.conftest import FIX_TURNS, Scenario

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def recording_proxy() -> AsyncIterator[tuple[dict[str, str], list[str]]]:
    """Yields proxy variables for everything but this machine, and the list of requested hosts."""
    received: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append((await reader.readline()).decode().strip())
        writer.write(b"HTTP/1.1 502 Nobody is there\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield (
            {"HTTPS_PROXY": url, "HTTP_PROXY": url, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
            received,
        )


async def test_with_an_enterprise_server_no_other_github_is_contacted(scenario: Scenario) -> None:
    # Complaint 14: GitHub Enterprise Server. The fake server has its paths: /api/v3, /api/graphql, and a port.
    await scenario.script_model(*FIX_TURNS)
    url = f"{scenario.fake_github.server_url}/acme/calc/issues/1"
    async with recording_proxy() as (proxy, request):
        code, out, error = await scenario.command("resolve", url, environment=proxy)
        assert (code, request) == (0, []), out + error
        assert f"pull request: {scenario.fake_github.server_url}/acme/calc/pull/2" in out
        written = "\n".join((out, error, str(scenario.pull.body), *scenario.comments))
        assert scenario.fake_github.server_url in written
        assert "github.com" not in written

        elsewhere = {**proxy, "GITHUB_SERVER_URL": "https://github.com"}
        issue = "https://github.com/acme/calc/issues/7"
        code, _, _ = await scenario.command("resolve", issue, environment=elsewhere)
        assert code != 0
        assert {line.split()[1] for line in request} == {
            "api.github.com:443"
        }  # so a request would have been recorded


async def test_an_issue_of_another_server_is_rejected_with_the_setting_to_change(
    scenario: Scenario,
) -> None:
    code, _, error = await scenario.command("resolve", "https://github.com/acme/calc/issues/1")
    assert code == 2
    assert f"Pass the URL of an issue, such as {scenario.fake_github.server_url}/OWNER/REPO/issues/7" in error
    assert "GITHUB_SERVER_URL" in error


async def test_a_run_reports_the_same_in_terminal_file_and_pull_request(
    scenario: Scenario,
) -> None:
    # Complaint 15: a log that people can read.
    await scenario.script_model(*FIX_TURNS)
    code, out, error = await scenario.command("resolve", "acme/calc#1")
    assert code == 0, error
    (run,) = scenario.runs
    code, _, result = await scenario.command("view", run, "--out", "run.html")
    assert code == 0, result
    page = (scenario.data / "run.html").read_text()
    text = " ".join(unescape(re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)).split())
    thoughts, deeds = (
        ("Fix it.", "Test it.", "Run them.", "Done."),
        ("calc.py", "tests/test_calc.py", "python3 -m pytest"),
    )
    for place in (error, text, str(scenario.pull.body)):
        found = [place.find(deed) for deed in deeds]
        assert -1 not in found, place
    for place in (error, text):  # in order and in plain text: no JSON, no control characters
        assert [place.find(thought) for thought in thoughts] == sorted(
            place.find(thought) for thought in thoughts
        )
        assert place.find(thoughts[0]) > 0
    assert '{"' not in error and not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", error)
    assert "verdict: fixed" in error + out


def images() -> set[str]:
    listed = subprocess.run(
        ["docker", "image", "ls", "--all", "--quiet", "--no-trunc", "--filter", "reference=patchwright-*"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(listed.stdout.split())


@pytest.mark.docker
async def test_a_second_run_reuses_the_image_without_a_notice(scenario: Scenario) -> None:
    # Complaint 23: slow starts and huge images.
    scenario.environment |= {"PATCHWRIGHT_SANDBOX": "docker", "PATCHWRIGHT_MEMORY_MB": "1024"}
    scenario.fake_github.create_issue(
        scenario.repo, title="add(1, 1) gives 0", body="It should give 2.", by="reporter"
    )
    received = []
    for number in (1, 2):
        await scenario.script_model(*FIX_TURNS)
        code, out, error = await scenario.command(
            "resolve", f"{scenario.fake_github.server_url}/acme/calc/issues/{number}"
        )
        assert code == 0, out + error
        received.append((images(), error))
    (first, _), (second, error) = received
    assert second - first == set()
    assert not re.search(r"building the sandbox (image|feature)", error, re.IGNORECASE), error


@pytest.mark.redis
async def test_the_readme_commands_start_a_server_that_prints_the_next_step(
    scenario: Scenario, tmp_path: Path
) -> None:
    # Complaint 13: simple self-hosting. The next steps in the browser: tests/bot/setup/test_in_browser.py.
    (section,) = re.findall(
        r"### On a server\n.*?```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    install, serve = section.splitlines()
    assert (
        install == "python3 -m venv .venv && .venv/bin/pip install ."
    )  # the time is stated in docs/self-hosting.md
    (tmp_path / ".venv").symlink_to(sys.prefix)
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f"exec {serve} --port 0",
        cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "HOME": str(scenario.data)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            output = (await process.stdout.readuntil(b"code: ")).decode()
            code = (await process.stdout.readline()).decode().strip()
        (address,) = re.findall(r"open (http://\S+/setup)\n", output)
        async with httpx.AsyncClient(trust_env=False, follow_redirects=True) as browser:
            refused = await browser.post(
                f"{address}/code", data={"code": "AAAA-AAAA-AAAA"}, headers=from_page(address)
            )
            assert refused.status_code == 403
            opened = await browser.post(f"{address}/code", data={"code": code}, headers=from_page(address))
            assert opened.status_code == 200 and "<h1>Choose a model</h1>" in opened.text
    finally:
        process.terminate()
        await process.communicate()


def from_page(address: str) -> dict[str, str]:
    """Returns the headers that a browser sends with a form."""
    return {"origin": address.removesuffix("/setup")}
