"""Marks on screenshots: the label of a box shows the bid of that element in the tree."""

import io

import pytest
from PIL import Image

from patchwright.runtime.page.marks import (
    COLORS,
    LABEL_PIXELS,
    MAX_BYTES,
    Rect,
    Screenshot,
    device_pixel_ratio,
    draw_label,
    place_labels,
)
from patchwright.runtime.page.page_reader import PageContent
from tests.runtime.chromium_page import SNAPSHOTS, PageSession, chromium, find_bid, open_page

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


def picture(snapshot: PageContent) -> Image.Image:
    assert snapshot.screenshot is not None
    return Image.open(io.BytesIO(snapshot.screenshot.data)).convert("RGB")


def labeled_at(
    image: Image.Image, bid: str, box: tuple[int, int, int, int], size: int = LABEL_PIXELS
) -> bool:
    """True if the label of this bid is drawn at this box, pixel by pixel."""
    left, top, right, bottom = box
    for color in COLORS:
        drawn = draw_label(bid, color, size)
        wide, high = drawn.size
        for x in (left - wide, left, right - wide, right):
            for y in (top - high, top, bottom - high, bottom):
                if image.crop((x, y, x + wide, y + high)).tobytes() == drawn.tobytes():
                    return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--force-device-scale-factor=2",)], ids=["1x", "2x"])
async def test_every_mark_shows_the_bid_of_the_element_in_its_box(flags: tuple[str, ...]) -> None:
    scale = 2 if flags else 1
    async with chromium(*flags) as browser:
        context = await browser.new_context(no_viewport=True) if flags else None
        async with open_page(browser, 1000, 600) as page_session:
            if context is not None:
                page_session.page = await context.new_page()
                page_session.session = await context.new_cdp_session(page_session.page)
            await page_session.show((SNAPSHOTS / "order.html").read_text())
            await page_session.page.evaluate(
                "document.querySelector('.box').scrollTop = 100; scrollTo(0, 40)"
            )
            snapshot = await page_session.read(screenshot=True)
            image = picture(snapshot)
            assert image.width == scale * await page_session.page.evaluate("innerWidth")
            assert len(snapshot.marks) > 8
            for bid, box in snapshot.marks.items():
                assert f"[{bid}] " in snapshot.tree and labeled_at(image, bid, box, LABEL_PIXELS * scale), bid
                # Chromium's own hit test: the element in the middle of the box has this bid.
                across, down = (box[0] + box[2]) / 2 / scale, (box[1] + box[3]) / 2 / scale + 40
                at = {"x": round(across), "y": round(down)}
                assert (await page_session.send("DOM.getNodeForLocation", at))[
                    "backendNodeId"
                ] == page_session.bids.find_node(bid)


@pytest.mark.slow
async def test_covered_scrolled_away_or_disabled_elements_get_no_mark(page_session: PageSession) -> None:
    await page_session.show((SNAPSHOTS / "order.html").read_text())
    snapshot = await page_session.read(screenshot=True)
    marked = set(snapshot.marks)
    for shown in (
        "link 'Home'",
        "textbox 'Name'",
        "'In the frame'",
        "'In the closed root'",
        "'Fixed'",
        "'Inner far'",
    ):
        assert find_bid(snapshot.tree, shown) in marked, shown
    for hidden in ("'Covered'", "'Last'", "'Inner hidden'", "button 'Send'", "option 'Small'", "heading"):
        assert find_bid(snapshot.tree, hidden) not in marked, hidden


@pytest.mark.slow
async def test_marks_are_drawn_on_request_and_never_into_the_page(page_session: PageSession) -> None:
    await page_session.show("<button>one</button>")
    before = await page_session.page.content()
    marked = await page_session.read(screenshot=True)
    bare = await page_session.read(screenshot=True, marks=False)
    assert marked.screenshot is not None and bare.screenshot is not None
    assert len(marked.marks) == 1 and bare.marks == {}
    assert picture(marked).tobytes() != picture(bare).tobytes()
    assert await page_session.page.content() == before


@pytest.mark.slow
async def test_a_crowded_page_gets_as_many_marks_as_are_distinguishable(page_session: PageSession) -> None:
    await page_session.show("<style>button { width: 30px; margin: 0 }</style>" + "<button>.</button>" * 400)
    snapshot = await page_session.read(screenshot=True, flag_visible=True)
    assert len(snapshot.marks) == 200
    assert snapshot.notes == ("Only the first 200 clickable elements are marked on the screenshot.",)
    assert snapshot.tree.count("clickable, visible") == 400


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


async def test_a_label_hides_neither_nearby_text_nor_its_element() -> None:
    (place,) = place_labels(
        [Rect(50, 50, 90, 66)],
        [(14, 13)],
        (200, 200),
        text_boxes=[Rect(0, 50, 49, 66), Rect(92, 50, 150, 66)],
    )
    assert place == Rect(50, 37, 64, 50)


async def test_the_digits_of_labels_have_contrast() -> None:
    def light(color: str) -> float:
        parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert min(1.05 / (light(color) + 0.05) for color in COLORS) >= 5


async def test_a_noisy_image_is_shrunk_and_invalid_bytes_are_rejected() -> None:
    noise = io.BytesIO()
    Image.effect_noise((1280, 720), 80).convert("RGB").save(noise, "PNG")
    assert len(noise.getvalue()) > MAX_BYTES
    drawn, marks = Screenshot(noise.getvalue()).draw_marks({"7": (10, 10, 50, 50)}, 1280)
    assert drawn.media_type == "image/jpeg" and len(drawn.data) <= MAX_BYTES
    assert marks == {"7": (10, 10, 50, 50)}
    with pytest.raises(ValueError, match="not a PNG"):
        Screenshot(b"GIF89a")


@pytest.mark.parametrize(
    ("pixels", "width", "expected"), [(1280, 1280, 1), (1280, 1265, 1), (2560, 1280, 2), (1050, 400, 2.625)]
)
async def test_the_device_pixel_ratio_is_derived_from_the_image(
    pixels: int, width: float, expected: float
) -> None:
    assert device_pixel_ratio(pixels, width) == expected
