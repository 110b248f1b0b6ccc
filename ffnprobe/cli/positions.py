"""Positions of a prompt as they are written on the command line."""

from ffnprobe.errors import OptionRefused


def read_positions(text: str) -> list[int] | str:
    """Read `-1`, `3,5` or `all`."""
    if text == "all":
        return text
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise OptionRefused(
            f'"{text}" is no position.', remedy="-1 (the last), 3, 3,5 or all"
        ) from None
