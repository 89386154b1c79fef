"""What a look at a page tells, in a real Chromium."""

import re

import pytest
from playwright.async_api import Browser

from runtime.page.page import Bids, find
from tests.runtime.looking import LOOKS, Eyes, bid_of, computed, eyes

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

ORDER = (LOOKS / "order.html").read_text()


async def test_a_page_is_told_as_its_gold_text(seer: Eyes) -> None:
    await seer.show(ORDER)
    seen = await seer.look()
    assert seen.tree + "\n" == (LOOKS / "order.txt").read_text()
    assert seen.notes == ()
    assert seen.screenshot is None


async def test_a_page_looked_at_part_by_part_reads_the_same(seer: Eyes) -> None:
    # The page is made large by what is far below, so that only what the viewport shows is asked about.
    below = "<div style='margin-top: 3000px'>" + "<p>far <a href=/>below</a></p>" * 400 + "</div>"
    await seer.show(ORDER)
    whole = (await seer.look(viewport_only=True)).tree
    assert "Accessibility.getFullAXTree" in seer.asked
    await seer.show(ORDER + below)
    seer.asked.clear()
    seen = await seer.look(viewport_only=True)
    assert "Accessibility.getFullAXTree" not in seer.asked
    assert re.sub(r"\[\d+\] ", "", seen.tree) == re.sub(r"\[\d+\] ", "", whole)
    assert seen.focused == bid_of(seen.tree, "textbox 'Name'")


async def test_only_clickable_elements_are_called_so_and_only_when_asked(seer: Eyes) -> None:
    await seer.show(
        "<button>A</button><button disabled>B</button><div id=c>C</div><div style='cursor: pointer'>D<b>d</b></div>"
        "<p>E</p><div contenteditable>F</div><div tabindex=0>G</div><label>H<input></label>"
        "<script>c.addEventListener('click', () => 1); document.body.onclick = () => 1</script>"
    )
    told = (await seer.look()).tree
    assert re.sub(r"\[\d+\] ", "", told).split("\n") == [
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
    assert (await seer.look(flag_clickable=False)).tree == told.replace(", clickable", "")


async def test_the_focus_is_flagged_and_named(seer: Eyes) -> None:
    await seer.show("<input aria-label=one><input aria-label=two autofocus>")
    await seer.page.focus("input:nth-of-type(2)")
    seen = await seer.look()
    assert seen.focused == bid_of(seen.tree, "textbox 'two', focused, clickable")
    unflagged = await seer.look(flag_focused=False)
    assert unflagged.tree == seen.tree.replace(", focused", "")
    assert unflagged.focused == seen.focused


async def test_visible_is_what_the_viewport_shows_and_nothing_covers(seer: Eyes) -> None:
    await seer.show(ORDER)
    told = (await seer.look(flag_visible=True)).tree
    assert "button 'Fixed', clickable, visible" in told
    assert "button 'In the frame', clickable, visible" in told
    for hidden in (
        "button 'Covered', clickable",
        "button 'Last', clickable",
        "button 'Inner hidden', clickable",
    ):
        assert f"{hidden}\n" in f"{told}\n"


async def test_only_what_is_in_the_viewport_is_told_when_that_is_asked_for(seer: Eyes) -> None:
    await seer.show(ORDER)
    told = (await seer.look(viewport_only=True)).tree
    assert "'Fixed'" in told and "'Last'" not in told and "'Inner hidden'" not in told
    await seer.page.evaluate("scrollTo(0, 10000)")
    told = (await seer.look(viewport_only=True)).tree
    assert "'Fixed'" in told and "'Last'" in told and "'Home'" not in told


async def test_a_bid_stays_with_its_element_whatever_changes_around_it(seer: Eyes) -> None:
    await seer.show("<div id=d><button id=a>A</button><button id=b>B</button></div>")
    first = (await seer.look()).tree
    kept, gone = bid_of(first, "button 'B'"), bid_of(first, "button 'A'")
    await seer.page.evaluate(
        "a.remove(); b.textContent = 'C'; b.id = 'c'; for (let i = 0; i < 20; i++) d.prepend(Object.assign("
        "document.createElement('button'), {textContent: 'new ' + i})); document.body.append(c)"
    )
    second = (await seer.look()).tree
    assert bid_of(second, "button 'C'") == kept
    assert f"[{gone}]" not in second
    assert (await seer.where(kept))["nodeName"] == "BUTTON"
    await seer.page.evaluate("c.style.display = 'none'")
    assert f"[{kept}]" not in (await seer.look()).tree
    await seer.page.evaluate("c.style.display = ''")
    assert bid_of((await seer.look()).tree, "button 'C'") == kept


async def test_a_bid_of_a_page_that_was_left_is_forgotten_and_never_given_again(seer: Eyes) -> None:
    await seer.page.goto("data:text/html,<button>one</button>")
    old = bid_of((await seer.look()).tree, "'one'")
    assert await find(seer.send, seer.bids, old) == seer.bids.node(old) is not None
    await seer.page.goto("data:text/html,<button>two</button>")
    # Before the next look already: a click between two looks must not hit a stranger.
    assert await find(seer.send, seer.bids, old) is None
    new = bid_of((await seer.look()).tree, "'two'")
    assert int(new) > int(old)


async def test_tabs_share_their_numbers(browser: Browser, seer: Eyes) -> None:
    async with eyes(browser) as other:
        other.bids = Bids(numbers=seer.bids.numbers)
        await seer.show("<button>one</button>")
        await other.show("<button>two</button>")
        seen = [bid_of((await tab.look()).tree, "button") for tab in (seer, other, seer)]
        assert seen[0] == seen[2] != seen[1]


async def test_frames_in_frames_and_roots_in_roots_are_told(seer: Eyes) -> None:
    await seer.show(
        "<iframe srcdoc=\"<title>1</title><iframe sandbox srcdoc='<title>2</title><button>deep</button>'></iframe>\">"
        "</iframe><div id=h><i slot=s>slotted</i></div><script>"
        "const outer = h.attachShadow({mode: 'closed'}); "
        "outer.innerHTML = '<p>before</p><slot name=s></slot><span id=u></span>';"
        "outer.getElementById('u').attachShadow({mode: 'open'}).innerHTML = '<a href=/x>inner</a>'</script>"
    )
    await seer.page.wait_for_timeout(200)
    assert re.sub(r"\[\d+\] ", "", (await seer.look()).tree).split("\n") == [
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


async def test_a_large_page_is_told_as_the_viewport_shows_it_with_a_note(seer: Eyes) -> None:
    rows = "".join(f"<p><a href=/{n}>Row {n}</a></p>" for n in range(3_400))
    style = "<style>p { line-height: 18px }</style>"  # whatever fonts are here
    await seer.show(f"<title>Big</title>{style}{rows}")
    await seer.look()
    before = computed()
    seen = await seer.look(screenshot=True)
    assert computed() - before < 5, "over 10,000 nodes; 0.4 s where nothing else runs"
    assert seen.notes == (
        "The whole tree has more than 20,000 characters, so it tells only what the viewport shows: "
        "0 to 600 of 115,608 pixels; scroll to see the rest.",
    )
    assert "link 'Row 0', clickable" in seen.tree and "'Row 50'" not in seen.tree
    assert len(seen.marks) == seen.tree.count("link")
    await seer.page.evaluate("scrollTo(0, 60000)")
    assert "link 'Row 1770', clickable" in (await seer.look()).tree


async def test_what_is_too_long_in_the_viewport_too_is_cut_at_a_line(seer: Eyes) -> None:
    await seer.show("".join(f"<button>{n:03}</button>" for n in range(300)))
    seen = await seer.look(most=500)
    assert len(seen.tree) <= 500
    assert seen.tree.split("\n")[-1] == "\t[16] button '015', clickable"
    assert seen.notes[-1] == "The tree is cut at 500 characters: 17 of 301 lines are shown."


async def test_values_and_states_are_told(seer: Eyes) -> None:
    await seer.show(
        "<input aria-label=a value=v><input type=checkbox aria-label=b>"
        "<input type=range aria-label=c min=1 max=5 value=2>"
        "<div role=tab aria-selected=true>d</div><button aria-pressed=true>e</button><details open><summary>f</summary>"
        "g</details><input aria-label=h required readonly><h3>i</h3><select multiple aria-label=j><option selected>k"
        "</select><a href=/no-name></a><div role=checkbox aria-checked=mixed>l</div>"
    )
    told = re.sub(r"\[\d+\] ", "", (await seer.look()).tree)
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
        assert f"\t{line}\n" in f"{told}\n", told
