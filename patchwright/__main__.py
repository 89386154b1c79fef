"""`python -m patchwright`: the same as the command `patchwright`."""

from patchwright.bot.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
