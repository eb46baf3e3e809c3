"""`beamer-hostagent`: the command line of the host agent."""

from beamer.lazy_commands import Command, run_command

SERVE = Command("hostagent.command:serve", "agent")


def main() -> None:
    """Run the command line."""
    run_command("beamer-hostagent", SERVE)


if __name__ == "__main__":
    main()
