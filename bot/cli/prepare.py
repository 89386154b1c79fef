"""`patchwright prepare` builds the sandbox images ahead of time."""

import argparse

from patchwright.bot.cli.options import add_config_and_json_options
from patchwright.bot.terminal.exit_codes import SUCCESS
from patchwright.bot.terminal.help_screens import Subparsers, add_command


def add(commands: Subparsers) -> None:
    """Adds the command to the command line."""
    command = add_command(
        commands,
        "prepare",
        "build the sandbox images ahead of time",
        "Build the images in which the agent works: one on the base image, and one on the image of each language\n"
        "(`language_images`). Each takes a minute or two. When you upgrade, run this before you restart the\n"
        "server, so that no job waits for an image.\n\n"
        "  patchwright prepare --image python:3.12-slim",
    )
    command.add_argument(
        "--sandbox",
        choices=("docker", "local", "auto"),
        help="where the agent runs commands (default auto); local needs no image [PATCHWRIGHT_SANDBOX]",
    )
    command.add_argument(
        "--image", metavar="IMAGE", help="base image of the Docker sandbox [PATCHWRIGHT_IMAGE]"
    )
    add_config_and_json_options(command)
    command.set_defaults(handler=run)


async def run(options: argparse.Namespace) -> int:
    """Builds the images of all sandboxes ahead of time."""
    from patchwright.bot.cli.settings_loading import load_settings
    from patchwright.bot.composition import composition_root
    from patchwright.bot.composition.sandbox_factory import build_docker_sandboxes
    from patchwright.bot.terminal.output import print_json, print_stderr
    from patchwright.resolver.runner_names import Language
    from patchwright.runtime.errors import ImageUnavailable

    settings = load_settings(options)
    composition_root.check_data_directory(settings.data)
    image, images = None, dict[Language, str | None]()
    if settings.sandbox != "local":
        sandboxes = build_docker_sandboxes(settings, composition_root.read_environment(), print_stderr)
        _, image = await sandboxes.prepare()
        for language, base in settings.language_images.items():
            try:
                _, images[language] = await (await sandboxes.with_image(base)).prepare()
            except ImageUnavailable as exc:
                images[language] = None
                print_stderr(f"NOTICE: {exc}. Tests in {language} use the default image.")
        await sandboxes.close()
    if options.json:
        print_json(
            {"image": image, "images": images, "sandbox_features": sandboxes.features if image else ()}
        )
    else:
        print(f"Sandbox images are ready: {image}" if image else "The local sandbox needs no image.")
        for language, base in settings.language_images.items() if image else ():
            print(f"for {language}, on {base}: {images[language] or 'none'}")
    return SUCCESS
