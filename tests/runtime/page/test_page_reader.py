"""Snapshots of pages in a real Chromium."""

import re
from typing import get_args

import pytest
from playwright.async_api import Browser

from patchwright.runtime.observations import SnapshotPart
from patchwright.runtime.page.page_reader import BidRegistry, find_node
from tests.runtime.chromium_page import SNAPSHOTS, PageSession, cpu_seconds, find_bid, open_page

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

ORDER = (SNAPSHOTS / "order.html").read_text()


@pytest.mark.slow
async def test_a_page_matches_its_recorded_text(page_session: PageSession) -> None:
    await page_session.show(ORDER)
    snapshot = await page_session.read()
    assert snapshot.tree + "\n" == (SNAPSHOTS / "order.txt").read_text()
    assert snapshot.notes == ()
    assert snapshot.screenshot is None


@pytest.mark.slow
async def test_a_page_read_in_parts_has_the_same_tree(page_session: PageSession) -> None:
    # Content far below makes the page large, so that only the viewport is queried.
    below = "<div style='margin-top: 3000px'>" + "<p>far <a href=/>below</a></p>" * 400 + "</div>"
    await page_session.show(ORDER)
    whole = (await page_session.read(viewport_only=True)).tree
    assert "Accessibility.getFullAXTree" in page_session.commands
    await page_session.show(ORDER + below)
    page_session.commands.clear()
    snapshot = await page_session.read(viewport_only=True)
    assert "Accessibility.getFullAXTree" not in page_session.commands
    assert re.sub(r"\[\d+\] ", "", snapshot.tree) == re.sub(r"\[\d+\] ", "", whole)
    assert snapshot.focused_bid == find_bid(snapshot.tree, "textbox 'Name'")


async def test_only_clickable_elements_are_flagged_and_only_on_request(page_session: PageSession) -> None:
    await page_session.show(
        "<button>A</button><button disabled>B</button><div id=c>C</div><div style='cursor: pointer'>D<b>d</b></div>"
        "<p>E</p><div contenteditable>F</div><div tabindex=0>G</div><label>H<input></label>"
        "<script>c.addEventListener('click', () => 1); document.body.onclick = () => 1</script>"
    )
    tree = (await page_session.read()).tree
    assert re.sub(r"\[\d+\] ", "", tree).split("\n") == [
        "RootWebArea '', focused",
        "\tbutton 'A', clickable",
        "\tbutton 'B', disabled",
        "\tgeneric, clickable",
        "\t\tStaticText 'C'",
        "\tgeneric, clickable",
        "\t\tStaticText 'Dd'",
        "\tStaticText 'E'",
        "\tgeneric, value='F', clickable",
        "\tgeneric, clickable",
        "\t\tStaticText 'G'",
        "\ttextbox 'H', clickable",
    ]
    assert (await page_session.read(flag_clickable=False)).tree == tree.replace(", clickable", "")


@pytest.mark.slow
async def test_the_focus_is_flagged_and_named(page_session: PageSession) -> None:
    await page_session.show("<input aria-label=one><input aria-label=two autofocus>")
    await page_session.page.focus("input:nth-of-type(2)")
    snapshot = await page_session.read()
    assert snapshot.focused_bid == find_bid(snapshot.tree, "textbox 'two', focused, clickable")
    unflagged = await page_session.read(flag_focused=False)
    assert unflagged.tree == snapshot.tree.replace(", focused", "")
    assert unflagged.focused_bid == snapshot.focused_bid


@pytest.mark.slow
async def test_visible_means_in_the_viewport_and_uncovered(page_session: PageSession) -> None:
    await page_session.show(ORDER)
    tree = (await page_session.read(flag_visible=True)).tree
    assert "button 'Fixed', clickable, visible" in tree
    assert "button 'In the frame', clickable, visible" in tree
    for hidden in (
        "button 'Covered', clickable",
        "button 'Last', clickable",
        "button 'Inner hidden', clickable",
    ):
        assert f"{hidden}\n" in f"{tree}\n"


@pytest.mark.slow
async def test_viewport_only_limits_the_tree(page_session: PageSession) -> None:
    await page_session.show(ORDER)
    tree = (await page_session.read(viewport_only=True)).tree
    assert "'Fixed'" in tree and "'Last'" not in tree and "'Inner hidden'" not in tree
    await page_session.page.evaluate("scrollTo(0, 10000)")
    tree = (await page_session.read(viewport_only=True)).tree
    assert "'Fixed'" in tree and "'Last'" in tree and "'Home'" not in tree


@pytest.mark.slow
@pytest.mark.parametrize("option", get_args(SnapshotPart))
async def test_each_option_changes_what_is_read(page_session: PageSession, option: SnapshotPart) -> None:
    await page_session.show(ORDER)
    await page_session.page.focus("input")
    on, off = [await page_session.read(**{"screenshot": True, option: on}) for on in (True, False)]
    changed = {
        "axtree": "tree",
        "html": "html",
        "dom": "dom",
        "screenshot": "screenshot",
        "marks": "screenshot",
    }.get(option, "tree")
    assert getattr(on, changed) and getattr(on, changed) != getattr(off, changed)


@pytest.mark.slow
async def test_a_bid_stays_with_its_element_whatever_changes_around_it(page_session: PageSession) -> None:
    await page_session.show("<div id=d><button id=a>A</button><button id=b>B</button></div>")
    first = (await page_session.read()).tree
    kept, gone = find_bid(first, "button 'B'"), find_bid(first, "button 'A'")
    await page_session.page.evaluate(
        "a.remove(); b.textContent = 'C'; b.id = 'c'; for (let i = 0; i < 20; i++) d.prepend(Object.assign("
        "document.createElement('button'), {textContent: 'new ' + i})); document.body.append(c)"
    )
    second = (await page_session.read()).tree
    assert find_bid(second, "button 'C'") == kept
    assert f"[{gone}]" not in second
    assert (await page_session.describe_element(kept))["nodeName"] == "BUTTON"
    await page_session.page.evaluate("c.style.display = 'none'")
    assert f"[{kept}]" not in (await page_session.read()).tree
    await page_session.page.evaluate("c.style.display = ''")
    assert find_bid((await page_session.read()).tree, "button 'C'") == kept


async def test_a_bid_of_an_earlier_page_is_dropped_and_never_reused(page_session: PageSession) -> None:
    await page_session.page.goto("data:text/html,<button>one</button>")
    old = find_bid((await page_session.read()).tree, "'one'")
    assert (
        await find_node(page_session.send, page_session.bids, old)
        == page_session.bids.find_node(old)
        is not None
    )
    await page_session.page.goto("data:text/html,<button>two</button>")
    # Even before the next snapshot: a click between two snapshots must not hit another element.
    assert await find_node(page_session.send, page_session.bids, old) is None
    new = find_bid((await page_session.read()).tree, "'two'")
    assert int(new) > int(old)


@pytest.mark.slow
async def test_tabs_share_one_bid_counter(browser: Browser, page_session: PageSession) -> None:
    async with open_page(browser) as other:
        other.bids = BidRegistry(counter=page_session.bids.counter)
        await page_session.show("<button>one</button>")
        await other.show("<button>two</button>")
        bids = [find_bid((await tab.read()).tree, "button") for tab in (page_session, other, page_session)]
        assert bids[0] == bids[2] != bids[1]


@pytest.mark.slow
async def test_nested_frames_and_shadow_roots_are_read(page_session: PageSession) -> None:
    await page_session.show(
        "<iframe srcdoc=\"<title>1</title><iframe sandbox srcdoc='<title>2</title><button>deep</button>'></iframe>\">"
        "</iframe><div id=h><i slot=s>slotted</i></div><script>"
        "const outer = h.attachShadow({mode: 'closed'}); "
        "outer.innerHTML = '<p>before</p><slot name=s></slot><span id=u></span>';"
        "outer.getElementById('u').attachShadow({mode: 'open'}).innerHTML = '<a href=/x>inner</a>'</script>"
    )
    await page_session.page.wait_for_timeout(200)
    assert re.sub(r"\[\d+\] ", "", (await page_session.read()).tree).split("\n") == [
        "RootWebArea '', focused",
        "\tIframe",
        "\t\tRootWebArea '1'",
        "\t\t\tIframe",
        "\t\t\t\tRootWebArea '2'",
        "\t\t\t\t\tbutton 'deep', clickable",
        "\tStaticText 'before'",
        "\tStaticText 'slotted'",
        "\tlink 'inner', clickable",
    ]


@pytest.mark.slow
async def test_a_large_page_is_limited_to_the_viewport_with_a_note(page_session: PageSession) -> None:
    rows = "".join(f"<p><a href=/{n}>Row {n}</a></p>" for n in range(3_400))
    style = "<style>p { line-height: 18px }</style>"  # independent of the installed fonts
    await page_session.show(f"<title>Big</title>{style}{rows}")
    await page_session.read()
    before = cpu_seconds()
    snapshot = await page_session.read(screenshot=True)
    assert cpu_seconds() - before < 5, "over 10,000 nodes; 0.4 s where nothing else runs"
    assert snapshot.notes == (
        "The whole tree has more than 20,000 characters, so only the viewport is shown: "
        "0 to 600 of 115,608 pixels; scroll to see the rest.",
    )
    assert "link 'Row 0', clickable" in snapshot.tree and "'Row 50'" not in snapshot.tree
    assert len(snapshot.marks) == snapshot.tree.count("link")
    await page_session.page.evaluate("scrollTo(0, 60000)")
    assert "link 'Row 1770', clickable" in (await page_session.read()).tree


@pytest.mark.slow
async def test_a_viewport_over_the_limit_is_cut_at_a_line(page_session: PageSession) -> None:
    await page_session.show("".join(f"<button>{n:03}</button>" for n in range(300)))
    snapshot = await page_session.read(max_chars=500)
    assert len(snapshot.tree) <= 500
    assert snapshot.tree.split("\n")[-1] == "\t[16] button '015', clickable"
    assert snapshot.notes[-1] == "The tree was cut at 500 characters: 17 of 301 lines are shown."


async def test_values_and_states_are_shown(page_session: PageSession) -> None:
    await page_session.show(
        "<input aria-label=a value=v><input type=checkbox aria-label=b>"
        "<input type=range aria-label=c min=1 max=5 value=2>"
        "<div role=tab aria-selected=true>d</div><button aria-pressed=true>e</button><details open><summary>f</summary>"
        "g</details><input aria-label=h required readonly><h3>i</h3><select multiple aria-label=j><option selected>k"
        "</select><a href=/no-name></a><div role=checkbox aria-checked=mixed>l</div>"
    )
    tree = re.sub(r"\[\d+\] ", "", (await page_session.read()).tree)
    for line in (
        "textbox 'a', value='v', clickable",
        "checkbox 'b', checked='false', clickable",
        "slider 'c', value='2', min=1, max=5, clickable",
        "tab 'd', selected, clickable",
        "button 'e', pressed='true', clickable",
        "DisclosureTriangle 'f', expanded='true', clickable",
        "textbox 'h', required, readonly, clickable",
        "heading 'i', level=3",
        "listbox 'j', multiselectable, clickable",
        "option 'k', selected, clickable",
        "checkbox 'l', checked='mixed', clickable",
    ):
        assert f"\t{line}\n" in f"{tree}\n", tree
