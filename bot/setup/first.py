"""The first start of a server: nothing says yet who it is, so it serves a page where somebody with the code says it."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address

from bot.http import Server, url_of
from bot.serve import Stores
from bot.setup import kept
from bot.setup.code import Code, Visitor
from bot.setup.images import Images
from bot.setup.model import tried
from bot.signals import signals
from bot.webhooks.receiver import App
from resolver.errors import SettingsError
from resolver.settings.settings import Settings

More = Callable[[Stores, Mapping[tuple[str, str], int]], Mapping[str, App]]


async def set_up(
    settings: Settings,
    door: socket.socket,
    probe: Sequence[str],
    environment: Mapping[str, str],
    images: Images,
) -> Visitor | signal.Signals:
    """Who has set it up, once that is done; or the signal that has ended it before.

    `door` stays open, for who serves next: nobody who comes meanwhile is turned away. `probe`: see bot/setup/model.py.
    `images`: what is made meanwhile. Raises SettingsError when nothing can be kept in the data directory.
    """
    from bot.setup.shown import first_start
    from bot.setup.site import Site

    try:
        await asyncio.to_thread(kept.check_room, settings.data)
    except OSError as exc:
        raise SettingsError(
            f"{kept.path_in(settings.data).parent} cannot be written ({exc.strerror}): the App's key is to be kept "
            "there. Let this user write in it, or set PATCHWRIGHT_DATA."
        ) from exc
    code, visitor = Code(), Visitor()
    site = Site(
        settings,
        kept.read(settings.data),
        code,
        visitor,
        lambda model: tried(model, probe, environment),
        images,
    )
    server = Server(site.application())
    with signals() as told:
        serving = asyncio.create_task(server.serve(sockets=[_copy(door)]))
        done = asyncio.create_task(site.done.wait())
        print(first_start(address(settings, door), code.text), flush=True)
        try:
            await asyncio.wait((serving, done, told), return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.should_exit = True
            done.cancel()
            await asyncio.gather(serving, done, return_exceptions=True)
        return told.result() if told.done() else visitor


def is_wanted(settings: Settings) -> bool:
    """Whether nobody has said who this server is; whoever has said part of it is told what lacks instead."""
    said = (settings.app_id, settings.private_key, settings.private_key_file, settings.github_token)
    return not any(said) and settings.webhook_secret is None


def welcoming(settings: Settings, visitor: Visitor, images: Images) -> More | None:
    """The page with what is left to do, for who has set this server up just now."""
    app = kept.read(settings.data).app
    if app is None:
        return None  # an operator has named another meanwhile

    def more(stores: Stores, deliveries: Mapping[tuple[str, str], int]) -> Mapping[str, App]:
        from bot.setup.welcome import Welcome, welcome

        return welcome(
            Welcome(
                settings,
                app,
                visitor,
                stores.presence,
                stores.runs,
                stores.queue,
                stores.lookout,
                deliveries,
                images,
            )
        )

    return more


def address(settings: Settings, door: socket.socket) -> str:
    """Where somebody opens the page."""
    if settings.public_url is not None:
        return f"{settings.public_url}/setup"
    host, port = door.getsockname()[:2]
    here = f"http://localhost:{port}" if ip_address(host).is_unspecified else url_of(door)
    return f"{here}/setup"


def _copy(door: socket.socket) -> socket.socket:
    """Who serves on a socket closes it in the end."""
    return socket.socket(door.family, door.type, fileno=os.dup(door.fileno()))
