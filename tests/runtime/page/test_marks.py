"""Marks on screenshots: the label at a box says the bid by which the tree names that very element."""

import io

import pytest
from PIL import Image

from runtime.page.marks import COLOURS, LABEL_PIXELS, MOST_BYTES, Rect, Screenshot, label, place_labels, ratio
from runtime.page.page import Seen
from tests.runtime.looking import LOOKS, Eyes, bid_of, chromium, eyes

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


def picture(seen: Seen) -> Image.Image:
    assert seen.screenshot is not None
    return Image.open(io.BytesIO(seen.screenshot.data)).convert("RGB")


def labelled_at(
    image: Image.Image, bid: str, box: tuple[int, int, int, int], size: int = LABEL_PIXELS
) -> bool:
    """Whether the label of this bid, pixel by pixel, stands at this box."""
    left, top, right, bottom = box
    for colour in COLOURS:
        drawn = label(bid, colour, size)
        wide, high = drawn.size
        for x in (left - wide, left, right - wide, right):
            for y in (top - high, top, bottom - high, bottom):
                if image.crop((x, y, x + wide, y + high)).tobytes() == drawn.tobytes():
                    return True
    return False


@pytest.mark.parametrize("flags", [(), ("--force-device-scale-factor=2",)], ids=["1x", "2x"])
async def test_every_mark_says_the_bid_of_the_element_in_its_box(flags: tuple[str, ...]) -> None:
    scale = 2 if flags else 1
    async with chromium(*flags) as browser:
        context = await browser.new_context(no_viewport=True) if flags else None
        async with eyes(browser, 1000, 600) as seer:
            if context is not None:
                seer.page = await context.new_page()
                seer.session = await context.new_cdp_session(seer.page)
            await seer.show((LOOKS / "order.html").read_text())
            await seer.page.evaluate("document.querySelector('.box').scrollTop = 100; scrollTo(0, 40)")
            seen = await seer.look(screenshot=True)
            image = picture(seen)
            assert image.width == scale * await seer.page.evaluate("innerWidth")
            assert len(seen.marks) > 8
            for bid, box in seen.marks.items():
                assert f"[{bid}] " in seen.tree and labelled_at(image, bid, box, LABEL_PIXELS * scale), bid
                # Chromium's own answer: what is at the middle of the box is the element that the bid names.
                across, down = (box[0] + box[2]) / 2 / scale, (box[1] + box[3]) / 2 / scale + 40
                at = {"x": round(across), "y": round(down)}
                assert (await seer.send("DOM.getNodeForLocation", at))["backendNodeId"] == seer.bids.node(bid)


async def test_what_is_covered_scrolled_away_or_disabled_gets_no_mark(seer: Eyes) -> None:
    await seer.show((LOOKS / "order.html").read_text())
    seen = await seer.look(screenshot=True)
    marked = set(seen.marks)
    for shown in (
        "link 'Home'",
        "textbox 'Name'",
        "'In the frame'",
        "'In the closed root'",
        "'Fixed'",
        "'Inner far'",
    ):
        assert bid_of(seen.tree, shown) in marked, shown
    for hidden in ("'Covered'", "'Last'", "'Inner hidden'", "button 'Send'", "option 'Small'", "heading"):
        assert bid_of(seen.tree, hidden) not in marked, hidden


async def test_marks_are_drawn_only_when_asked_for_and_never_into_the_page(seer: Eyes) -> None:
    await seer.show("<button>one</button>")
    before = await seer.page.content()
    marked = await seer.look(screenshot=True)
    bare = await seer.look(screenshot=True, marks=False)
    assert marked.screenshot is not None and bare.screenshot is not None
    assert len(marked.marks) == 1 and bare.marks == {}
    assert picture(marked).tobytes() != picture(bare).tobytes()
    assert await seer.page.content() == before


async def test_a_crowded_page_gets_as_many_marks_as_can_be_told_apart(seer: Eyes) -> None:
    await seer.show("<style>button { width: 30px; margin: 0 }</style>" + "<button>.</button>" * 400)
    seen = await seer.look(screenshot=True, flag_visible=True)
    assert len(seen.marks) == 200
    assert seen.notes == ("Only the first 200 elements that can be clicked are marked on the screenshot.",)
    assert seen.tree.count("clickable, visible") == 400


async def test_labels_avoid_each_other_and_other_elements() -> None:
    boxes = [
        Rect(20 + 60 * column, 20 + 20 * row, 70 + 60 * column, 36 + 20 * row)
        for row in range(9)
        for column in range(5)
    ]
    places = place_labels(boxes, [(14, 13)] * len(boxes), (340, 220))
    for one, place in enumerate(places):
        assert all(place.overlap(other) == 0 for other in places[:one])
        assert place.left >= 0 and place.top >= 0 and place.right <= 340 and place.bottom <= 220


async def test_a_label_hides_neither_the_words_beside_it_nor_what_it_names() -> None:
    (place,) = place_labels(
        [Rect(50, 50, 90, 66)], [(14, 13)], (200, 200), texts=[Rect(0, 50, 49, 66), Rect(92, 50, 150, 66)]
    )
    assert place == Rect(50, 37, 64, 50)


async def test_the_digits_stand_out() -> None:
    def light(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert min(1.05 / (light(colour) + 0.05) for colour in COLOURS) >= 5


async def test_a_picture_of_noise_is_made_small_enough_and_no_picture_is_refused() -> None:
    noise = io.BytesIO()
    Image.effect_noise((1280, 720), 80).convert("RGB").save(noise, "PNG")
    assert len(noise.getvalue()) > MOST_BYTES
    drawn, marks = Screenshot(noise.getvalue()).marked({"7": (10, 10, 50, 50)}, 1280)
    assert drawn.media == "image/jpeg" and len(drawn.data) <= MOST_BYTES
    assert marks == {"7": (10, 10, 50, 50)}
    with pytest.raises(ValueError, match="no PNG"):
        Screenshot(b"GIF89a")


@pytest.mark.parametrize(
    ("pixels", "width", "expected"), [(1280, 1280, 1), (1280, 1265, 1), (2560, 1280, 2), (1050, 400, 2.625)]
)
async def test_the_device_pixel_ratio_is_told_from_the_picture(
    pixels: int, width: float, expected: float
) -> None:
    assert ratio(pixels, width) == expected
