"""The list of runs: found by a plain form, page after page, and what they come to."""

import hmac
import re
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from bot.glance import Glance
from bot.jobs import Failed
from bot.observe.faults import FOREIGN
from bot.page.overview import MOST_FIELDS, Outcomes
from bot.redis.client import redis_client
from bot.redis.engines import Engines, telling
from bot.redis.ledger import Ledger
from bot.redis.lookout import Lookout, Trouble
from resolver.domain import JobId, Repo
from runtime.errors import EngineUnavailable
from tests.bot.jobs import DONE
from tests.page.conftest import Room

pytestmark = pytest.mark.redis

NOW = time.time()


def glance(number: int, **more: object) -> Glance:
    base = {"run": f"acme-calc-{number}", "state": "delivered", "repository": "acme/calc", "number": number}
    return Glance.model_validate({**base, "title": f"Issue {number}", "began": NOW - number * 60, **more})


@pytest.fixture
async def filled(room: Room) -> httpx.AsyncClient:
    """The operator's browser, before eight runs."""
    for one in (
        glance(1, verdict="fixed", pull=101, usd=0.5),
        glance(2, verdict="fixed", pull=102, usd=0.25, by="ada"),
        glance(3, verdict="unproven", pull=103, usd=1.0),
        glance(4, verdict="fixed", pull=104, usd=0.25),
        glance(5, state="failed", title="The <b>disk</b> is full"),
        glance(6, state="commented", verdict="regressed", repository="acme/web"),
        glance(7, state="working", repository="acme/web", usd=0.125, priced=False),
        glance(8, state="asked", title="Größe and more"),
    ):
        await room.runs.put(one)
    return await room.operator()


async def shown(browser: httpx.AsyncClient, **query: str) -> list[str]:
    answer = await browser.get("/", params=query)
    assert answer.status_code == 200
    return re.findall(r'href="/runs/acme-calc-(\d+)"', answer.text)


FILTERS: list[tuple[dict[str, str], str]] = [
    ({}, "12345678"),
    ({"state": "delivered"}, "1234"),
    ({"verdict": "fixed"}, "124"),
    ({"repository": "acme/web"}, "67"),
    ({"repository": "ACME/Web"}, "67"),
    ({"text": "disk"}, "5"),
    ({"text": "GRÖSSE"}, ""),
    ({"text": "größe"}, "8"),
    ({"text": "acme/web#7"}, "7"),
    ({"text": "ada"}, "2"),
    ({"text": "acme-calc-3"}, "3"),
    ({"state": "delivered", "verdict": "fixed", "text": "issue 4"}, "4"),
    ({"state": "", "repository": "", "verdict": "", "text": " ", "page": ""}, "12345678"),
    ({"unknown": "x"}, "12345678"),
    ({"page": "2"}, ""),
    ({"text": "' OR 1=1 --"}, ""),
]


async def test_a_filter_shows_what_fits(filled: httpx.AsyncClient) -> None:
    found = [(query, "".join(await shown(filled, **query))) for query, _ in FILTERS]
    assert found == FILTERS


async def test_the_form_keeps_what_was_asked_for(filled: httpx.AsyncClient) -> None:
    page = (await filled.get("/", params={"state": "asked", "text": '"><script>x</script>'})).text
    assert "<option selected>asked</option>" in page
    assert 'value="&#34;&gt;&lt;script&gt;x&lt;/script&gt;"' in page
    assert "No run fits this filter." in page
    assert "<script>x" not in page


NONSENSE = (
    "state=lost",
    "verdict=great",
    "page=0",
    "page=-1",
    "page=x",
    "page=" + "9" * 150,
    "page=10001",
    "text=" + "x" * 201,
    "&".join(f"f{n}={n}" for n in range(1_000)),
    "&".join(["state=asked"] * (MOST_FIELDS + 1)),
)


async def test_a_filter_that_makes_no_sense_is_refused_with_a_sentence(room: Room) -> None:
    browser = await room.operator()
    for query in NONSENSE:
        answer = await browser.get(f"/?{query}")
        said = "That makes no sense here" in answer.text
        assert (query[:40], answer.status_code, said) == (query[:40], 400, True)


async def test_pages_follow_each_other_and_keep_the_filter(room: Room) -> None:
    for number in range(1, 121):
        await room.runs.put(glance(number, state="delivered" if number % 2 else "failed"))
    browser = await room.operator()
    first = (await browser.get("/?state=delivered")).text
    assert re.findall(r'<a href="([^"]+)" rel="(\w+)">', first) == [("/?state=delivered&amp;page=2", "next")]
    second = await shown(browser, state="delivered", page="2")
    assert second == [str(number) for number in range(101, 121, 2)]
    assert 'rel="prev">Newer' in (await browser.get("/?state=delivered&page=2")).text
    assert "60 runs" in first


async def test_outcomes_are_of_what_is_shown(room: Room, filled: httpx.AsyncClient) -> None:
    ledger = Ledger(room.redis)
    for number, came_to in ((101, "untouched"), (102, "merged"), (103, "closed")):
        await ledger.outcome_of_pull(Repo(owner="acme", name="calc"), number, came_to)  # type: ignore[arg-type]
    await ledger.close()
    await room.runs.put(glance(9, pull=101))  # a review of it was followed up
    figures = re.findall(r"<dt>([\w -]+)</dt><dd><b>([^<]+)</b>", (await filled.get("/")).text)
    assert dict(figures) == {
        "Runs": "9",
        "Pull requests": "4",
        "Merged": "2",
        "Zero-touch": "1",
        "Cost": "≥ $2.12",
        "Per merge": "≥ $1.06",
        "Infrastructure": "87.5 %",
    }
    some = dict(
        re.findall(r"<dt>([\w -]+)</dt><dd><b>([^<]+)</b>", (await filled.get("/?text=issue 3")).text)
    )
    assert (some["Merged"], some["Per merge"], some["Cost"]) == ("0", "–", "$1.00")


async def test_a_cost_of_which_nothing_is_known_is_called_unknown_beside_its_tokens(room: Room) -> None:
    await room.runs.put(glance(1, pull=101, priced=False, tokens=12_345))
    ledger = Ledger(room.redis)
    await ledger.outcome_of_pull(Repo(owner="acme", name="calc"), 101, "merged")
    await ledger.close()
    page = (await (await room.operator()).get("/")).text
    assert re.findall(r"<dt>(Cost|Per merge)</dt><dd><b>([^<]+)</b>", page) == [
        ("Cost", "unknown"),
        ("Per merge", "unknown"),
    ]
    assert re.findall(r'data-name="Cost"[^>]*>([^<]+)<small>([^<]+)<', page) == [
        ("unknown ", "12,345 tokens")
    ]
    assert "of these runs; 1 with an unknown price, which no limit in dollars counts" in page


async def test_every_figure_says_what_it_means(filled: httpx.AsyncClient) -> None:
    page = (await filled.get("/")).text
    assert dict(re.findall(r"<dt>([\w -]+)</dt><dd><b>[^<]+</b> <small>([^<]+)</small>", page)) == {
        "Runs": "in the list below",
        "Pull requests": "opened or worked on",
        "Merged": "0 closed without a merge",
        "Zero-touch": "merged without a commit of anybody else",
        "Cost": "of these runs; 1 with an unknown price, which no limit in dollars counts",
        "Per merge": "cost, shared out among what was merged",
        "Infrastructure": "of ended runs had no failure of server, sandbox or GitHub",
    }


def test_what_a_model_or_the_settings_have_failed_is_no_failure_of_the_machine() -> None:
    outcomes, run = Outcomes(), glance(1, state="working")
    for fault in (*FOREIGN, "engine", "ours"):
        outcomes.add(run.after(Failed.model_validate({"error": "It is down.", "fault": fault})))
    assert (outcomes.ended, outcomes.success) == (4, 0.5)
    assert run.after(Failed(error="It is down.", fault="provider")).after(DONE).fault is None


def test_of_nothing_nothing_is_said() -> None:
    assert (Outcomes().success, Outcomes().usd_per_merged) == (None, None)


async def test_a_job_that_waits_is_listed_before_it_has_begun(room: Room) -> None:
    await room.queue.put(room.job("acme-calc-9-waiting", number=9))
    page = (await (await room.operator()).get("/?state=waiting")).text
    assert "/runs/acme-calc-9-waiting" in page


async def test_health_is_told_part_by_part_with_figures_for_the_operator_alone(room: Room) -> None:
    async def unreachable() -> None:
        raise EngineUnavailable("no engine answers at unix:///run/docker.sock")

    for machine in ("one", "two"):
        engines = Engines(room.redis, machine)
        await engines.tell()
        if machine == "two":
            with pytest.raises(EngineUnavailable):
                await telling(unreachable, engines)()
        await engines.close()
    lookout = Lookout(room.redis)
    since = datetime.now(UTC) - timedelta(minutes=3)
    await lookout.note(Trouble(reason="no answer from GitHub", since=since))
    await lookout.close()
    await room.queue.put(room.job(str(JobId("acme-calc-9-waiting"))))
    operator = (await (await room.operator()).get("/")).text
    parts = re.findall(r'<dt>(\w+)</dt><dd><span class="mark \w+">([\w ]+)</span> <small>([^<]*)', operator)
    assert [(name, how) for name, how, _ in parts] == [
        ("Receiver", "works"),
        ("Redis", "works"),
        ("Workers", "does not work"),
        ("Queue", "works"),
        ("Engine", "does not work"),
        ("GitHub", "does not work"),
    ]
    away = r"no look there has worked for 3 min( \d+ s)?: no answer from GitHub"
    assert re.fullmatch(away, parts[5][2].strip())
    assert parts[5][2].endswith(": no answer from GitHub")
    assert parts[4][2] == "1 of 2 machines answer; two: no engine answers at unix:///run/docker.sock"
    assert parts[2][2] == "0 at work"
    assert parts[3][2].startswith("0 under way, 1 wait")
    reader = (await (await room.person("reader")).get("/")).text
    assert ("does not work" in reader, "0 at work" in reader, "docker.sock" in reader) == (True, False, False)


async def test_a_receiver_that_knows_no_signature_and_a_store_that_is_full_are_shown_as_broken(
    room: Room,
) -> None:
    operator, redis = await room.operator(), redis_client(room.redis)

    async def receive(secret: str) -> None:
        digest = hmac.digest(secret.encode(), b"{}", "sha256").hex()
        signed = {"x-hub-signature-256": f"sha256={digest}", "x-github-event": "ping"}
        await room.browser().post("/webhook", content=b"{}", headers=signed)

    async def told() -> dict[str, tuple[str, str]]:
        page = (await operator.get("/")).text
        part = r'<dt>(Receiver|Redis)</dt><dd><span class="mark \w+">([\w ]+)</span> <small>([^<]*)'
        return {name: (how, figures) for name, how, figures in re.findall(part, page)}

    well = await told()
    await receive("of-another-app")
    await redis.config_set("maxmemory", "1")
    broken = await told()
    await redis.config_set("maxmemory", "0")
    await receive("story-webhook-secret")
    mended = await told()
    await redis.aclose(close_connection_pool=True)
    assert well == {
        "Receiver": ("works", "deliveries since it began: 0"),
        "Redis": ("works", "deliveries to be read: 0"),
    }
    assert broken == {
        "Receiver": (
            "does not work",
            "deliveries since it began: 1, none of them signed with our webhook secret",
        ),
        "Redis": ("does not work", "nothing can be stored there"),
    }
    assert {name: how for name, (how, _) in mended.items()} == {"Receiver": "works", "Redis": "works"}


async def test_without_its_store_the_page_says_so(room: Room) -> None:
    browser = await room.operator()
    redis = redis_client(room.redis)
    await redis.set("patchwright:runs", b"of another type")
    await redis.aclose(close_connection_pool=True)
    await room.queue.put(room.job("acme-calc-9-waiting"))
    answer = await browser.get("/runs/acme-calc-9-waiting")
    assert (answer.status_code, "The store does not answer" in answer.text) == (503, True)
