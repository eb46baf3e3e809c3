"""How the variables of the environment are called that set the options of a command; needs no package."""


def variables_of(command: str) -> str:
    """Return how those of a command begin, as it is typed: `beamer-controller` is BEAMER_CONTROLLER_."""
    return f"{command.replace('-', '_').replace(' ', '_').upper()}_"


def variable_of(prefix: str, option: str) -> str:
    """Return that of an option. option: its name without dashes before it."""
    return f"{prefix}{option.replace('-', '_').upper()}"
