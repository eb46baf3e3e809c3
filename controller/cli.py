"""`beamer-controller`: the command line of the controller."""

from beamer.lazy_commands import Command, run_command

SERVE = Command("controller.commands.serve:serve", "controller")


def main() -> None:
    """Run the command line."""
    run_command("beamer-controller", SERVE)


if __name__ == "__main__":
    main()
