"""`patchwright completion` prints the completion script of a shell."""

import argparse

from patchwright.bot.terminal.help_screens import Subparsers, add_command


def add(commands: Subparsers) -> None:
    """Adds the command to the command line."""
    command = add_command(
        commands,
        "completion",
        "print the completion script of a shell",
        "Print a script that completes commands, options and names of runs in your shell.\n\n"
        "  patchwright completion bash > ~/.patchwright.bash && echo '. ~/.patchwright.bash' >> ~/.bashrc\n"
        "  patchwright completion zsh > ~/.patchwright.zsh && echo '. ~/.patchwright.zsh' >> ~/.zshrc\n"
        "  mkdir -p ~/.config/fish/completions && "
        "patchwright completion fish > ~/.config/fish/completions/patchwright.fish",
        has_settings=False,
    )
    command.add_argument("shell", choices=("bash", "zsh", "fish"))
    command.set_defaults(json=False)
    command.set_defaults(handler=run)


async def run(options: argparse.Namespace) -> int:
    """Prints the completion script of a shell."""
    from patchwright.bot.commands.completion import completion_script

    print(completion_script(options.shell))
    return 0
