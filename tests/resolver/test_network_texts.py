"""What people and the model read about the network of the agent's sandbox."""

from pathlib import Path

import pytest

from patchwright.resolver.activity.summary import Summary
from patchwright.resolver.domain import Issue, Usage, User, Verdict
from patchwright.resolver.events import AgentStopped, VerificationCompleted
from patchwright.resolver.pipeline.run_start import find_usable_network
from patchwright.resolver.prompts.system_prompt import SandboxDescription, render_system_prompt
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.run_events import NetworkAccess
from patchwright.resolver.run_log import FileLogStore
from patchwright.runtime.egress_policy import ConnectionSummary, NetworkMode
from tests.resolver.sample_runs import run_of, started

PYPI = ConnectionSummary(host="pypi.org", port=443, count=2, bytes_sent=12_300, bytes_received=3_400_000)
REFUSED = ConnectionSummary(host="github.com", port=443, denied="unlisted", count=1)


def body(**story: object) -> str:
    thread = Issue(
        number=7, title="t", body="", author=User(id=1, login="o"), trusted=True, open=True, url=""
    )
    summary = Summary(
        **{
            "finish": None,
            "stop_detail": "Out of steps.",
            "steps": (),
            "usage": Usage(),
            "model": "m",
            "sandbox": "docker",
            **story,
        }
    )
    return reply_texts.render_pull_request_body(
        thread,
        Verdict(kind="untested", reason="No tests."),
        summary,
        reply_texts.PullRequestRemarks(notes=("a.py",)),
    )


def test_a_pull_request_lists_allowed_and_blocked_connections() -> None:
    text = body(network="allowlist", visits=(PYPI, REFUSED))
    assert (
        "\nNetwork: `pypi.org` (12 kB up, 3.4 MB down); "
        "blocked: `github.com` (it is not on the allowlist (setting `allowed_hosts`))\n"
    ) in text
    assert "no network" not in text
    assert "\n\n\n" not in text


def test_a_pull_request_of_a_sandbox_without_network_says_so() -> None:
    assert "docker sandbox, no network\n" in body(network="none")
    assert "Network:" not in body(network="none") + body(network="allowlist")


def test_a_host_name_is_neutralized_in_a_pull_request() -> None:
    loud = ConnectionSummary(host="x`](http://evil.test) @team fixes #3", port=443, denied="literal")
    text = body(network="open", visits=(loud,))
    line = next(line for line in text.splitlines() if line.startswith("Network:"))
    assert line.count("`") == 2 and "@team" not in line and "fixes #3" not in line


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("none", "It has no network"),
        ("allowlist", "the usual package indexes"),
        ("open", "a proxy that leads to public hosts"),
    ],
)
def test_the_system_prompt_describes_the_network(network: NetworkMode, expected: str) -> None:
    prompt = render_system_prompt(SandboxDescription("/w", "/tmp", "docker", network))
    assert expected in prompt
    assert ("is verified without the packages" in prompt) == (
        network != "none"
    )  # Without a network, nothing can be installed.


@pytest.mark.parametrize(
    ("visits", "expected"),
    [
        ((), "allowlist"),
        ((PYPI,), "allowlist"),
        ((REFUSED,), "allowlist"),
        ((REFUSED.model_copy(update={"host": "pypi.org", "denied": "private"}),), "none"),
        ((PYPI, REFUSED.model_copy(update={"denied": "private"})), "allowlist"),
    ],
)
def test_the_model_is_promised_no_network_that_refused_the_setup(
    visits: tuple[ConnectionSummary, ...], expected: NetworkMode
) -> None:
    run = run_of(started(), NetworkAccess(visits=visits))
    assert find_usable_network(run, "allowlist") == expected


async def test_network_visits_add_up_over_the_log(tmp_path: Path) -> None:
    async with FileLogStore(tmp_path).open("run") as log:
        await log.append(AgentStopped(reason="finished", detail="Done."))
        await log.append(NetworkAccess(visits=(PYPI,)))
        await log.append(VerificationCompleted(verdict=Verdict(kind="untested")))
        await log.append(NetworkAccess(visits=(PYPI, REFUSED)))
    kept = FileLogStore(tmp_path).read("run")
    assert kept.network_visits() == (
        PYPI.model_copy(update={"count": 4, "bytes_sent": 24_600, "bytes_received": 6_800_000}),
        REFUSED,
    )
