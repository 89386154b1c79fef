"""The command that takes the screenshots of the docs."""

import asyncio
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
WIDTHS = {"demo.png": 1500, "dashboard.png": 1180, "run.png": 1180}


@pytest.mark.slow
@pytest.mark.redis
@pytest.mark.browser
async def test_one_command_takes_every_screenshot_of_the_docs(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.screenshots", tmp_path, "--sandbox", "local", cwd=ROOT
    )
    assert await process.wait() == 0
    shown = {path.name: Image.open(path) for path in tmp_path.glob("*.png")}
    assert {name: picture.width for name, picture in shown.items()} == WIDTHS
    assert min(picture.height for picture in shown.values()) > 600
    assert {path.name for path in (ROOT / "docs").glob("*.png")} == set(WIDTHS)
