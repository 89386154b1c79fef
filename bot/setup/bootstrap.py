"""The first start of a server: serves the setup pages until a GitHub App is configured."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from patchwright.bot.http_server import HttpServer, listener_url
from patchwright.bot.redis.connection import wait_for_redis
from patchwright.bot.redis.embedded_redis import lock_data_directory
from patchwright.bot.setup import credential_store
from patchwright.bot.setup.credential_key import key_settings
from patchwright.bot.setup.image_preparation import ImagePreparation
from patchwright.bot.setup.model_probe import probe_model
from patchwright.bot.setup.setup_code import SetupCode, SetupSession
from patchwright.bot.signals import catch_stop_signals
from patchwright.bot.web.redis_stores import RedisStores
from patchwright.bot.web.server import ExtraApps
from patchwright.bot.webhooks.receiver import AsgiApp
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.settings.settings import Settings


async def run_setup(
    settings: Settings,
    listening_socket: socket.socket,
    probe_command: Sequence[str],
    environment: Mapping[str, str],
    image_preparation: ImagePreparation,
) -> SetupSession | signal.Signals:
    """Serves the setup pages until the setup is complete, and then returns the setup session. If a signal stops
    the setup, returns the signal.

    `listening_socket` stays open for the server that starts after the setup, so that no connection is refused
    in between. `probe_command` starts the program that tests a model. `image_preparation` is the state of the
    image build, which runs during the setup. Raises SettingsError if the data directory is not writable, or
    if the configured Redis does not respond.
    """
    from patchwright.bot.setup.setup_views import render_start_notice
    from patchwright.bot.setup.wizard import SetupWizard

    try:
        await asyncio.to_thread(credential_store.check_writable, settings.data, key_settings(settings))
    except OSError as exc:
        raise SettingsError(
            f"{credential_store.store_path(settings.data).parent} is not writable ({exc.strerror}), but the App's key "
            "is saved there. Make it writable for this user, or set PATCHWRIGHT_DATA to another directory."
        ) from exc
    if settings.redis_url is not None:
        await wait_for_redis(settings.redis_url, lambda line: print(line, file=sys.stderr, flush=True))
    code, session = SetupCode(), SetupSession()
    wizard = SetupWizard(
        settings,
        credential_store.load(settings.data, key_settings(settings)),
        code,
        session,
        lambda model: probe_model(model, probe_command, environment),
        image_preparation,
    )
    server = HttpServer(wizard.create_app())
    with lock_data_directory(settings.data), catch_stop_signals() as stop_signal:
        serving = asyncio.create_task(server.serve(sockets=[_duplicate_socket(listening_socket)]))
        done = asyncio.create_task(wizard.done.wait())
        print(render_start_notice(setup_url(settings, listening_socket), code.text), flush=True)
        try:
            await asyncio.wait((serving, done, stop_signal), return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.should_exit = True
            done.cancel()
            await asyncio.gather(serving, done, return_exceptions=True)
        return stop_signal.result() if stop_signal.done() else session


def is_setup_needed(settings: Settings) -> bool:
    """Returns True if neither a GitHub identity nor a webhook secret is configured."""
    identities = (settings.app_id, settings.private_key, settings.github_token)
    return not any(identities) and settings.webhook_secret is None


def welcome_routes(
    settings: Settings, session: SetupSession, image_preparation: ImagePreparation
) -> ExtraApps | None:
    """Returns the routes of the welcome page, which only the browser that completed the setup can open.

    Returns None if no App is saved.
    """
    app = credential_store.load(settings.data, key_settings(settings)).app
    if app is None:
        return None  # the operator has configured another identity since the setup

    def create_routes(
        stores: RedisStores, delivery_counts: Mapping[tuple[str, str], int]
    ) -> Mapping[str, AsgiApp]:
        from patchwright.bot.setup.welcome import WelcomePage, create_welcome_apps

        return create_welcome_apps(
            WelcomePage(settings, app, session, stores, delivery_counts, image_preparation)
        )

    return create_routes


def setup_url(settings: Settings, listening_socket: socket.socket) -> str:
    """Returns the URL of the setup page."""
    if settings.public_url is not None:
        return f"{settings.public_url}/setup"
    host, port = listening_socket.getsockname()[:2]
    base_url = (
        f"http://localhost:{port}" if ip_address(host).is_unspecified else listener_url(listening_socket)
    )
    return f"{base_url}/setup"


def _duplicate_socket(listening_socket: socket.socket) -> socket.socket:
    """Returns a duplicate of the socket. When a server stops, it closes the duplicate, and the original stays
    open.
    """
    return socket.socket(
        listening_socket.family, listening_socket.type, fileno=os.dup(listening_socket.fileno())
    )
