"""The texts of the setup's pages: one typed function for each template."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from bot.glance import Glance
from bot.page.shown import Around, render
from bot.setup.github import PERMISSIONS
from bot.setup.images import Images
from bot.setup.kept import OwnApp
from bot.setup.model import SECONDS
from resolver.settings.server import is_loopback
from resolver.settings.settings import Settings
from resolver.words import texts

Problem = Literal[
    "address", "forge", "form", "log_in", "model", "model_address", "no_name", "no_room", "not_kept", "state", "used",
    "void_code", "wrong_code",
]  # fmt: skip


@dataclass(frozen=True)
class Trouble:
    """Why a step came to nothing."""

    what: Problem
    why: str = ""
    again: str = ""
    """Where the same is tried once more; "": nowhere."""


@dataclass(frozen=True)
class Step:
    """Something that is to be done until a first issue is answered."""

    what: Literal["install", "hear", "unsigned", "look", "worker", "first"]
    done: bool
    fact: str = ""
    link: str = ""
    """Where somebody does it."""
    why: str = ""
    """What keeps it from being done, in the words of whoever was asked."""
    run: Glance | None = None
    """The first run, once it is there."""


def entrance(around: Around, trouble: Trouble | None) -> str:
    """Where the code is entered."""
    return render("setup_code", around, trouble=trouble)


def model(around: Around, trouble: Trouble | None, said: Mapping[str, str], data: str, images: Images) -> str:
    """Where the model is chosen; `data`: the directory where things are kept."""
    return render(
        "setup_model", around, trouble=trouble, said=said, data=data, images=images, most=round(SECONDS)
    )


def unpriced(around: Around, name: str, settings: Settings) -> str:
    """Which limits do not hold for a model whose price nobody knows, which do, and how to go on."""
    return render("setup_price", around, model=name, settings=settings)


def app(
    around: Around,
    trouble: Trouble | None,
    said: Mapping[str, str],
    unkept: OwnApp | None,
    images: Images,
    *,
    local: bool,
) -> str:
    """Where the App is described.

    `unkept`: one that was made and whose key could not be kept; `local`: only this machine reaches the address there.
    """
    return render("setup_app", around, trouble=trouble, said=said, unkept=unkept, images=images, local=local)


def sending(around: Around, address: str, manifest: Mapping[str, object], host: str) -> str:
    """What GitHub is asked for, with the button that leads there."""
    return render(
        "setup_send",
        around,
        address=address,
        manifest=json.dumps(manifest),
        host=host,
        granted={name.replace("_", " "): level for name, level in PERMISSIONS.items()},
        webhook="hook_attributes" in manifest,
    )


def welcome(around: Around, steps: tuple[Step, ...], settings: Settings) -> str:
    """What is left to do, and what the first run has come to."""
    return render(
        "welcome", around, steps=steps, settings=settings, left=sum(not step.done for step in steps)
    )


def first_start(address: str, code: str) -> str:
    """What the server prints at its first start."""
    port = urlsplit(address).port if is_loopback(address) else None
    template = texts.environment().get_template("page/setup_start.txt.j2")
    return template.render(address=address, code=code, port=port)
