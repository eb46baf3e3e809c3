"""Texts of others, for a terminal; programs use it whose machine has nothing but Python."""


def one_line(text: str) -> str:
    """Return a text as one line that steers no terminal: characters that would are shown as escapes."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
