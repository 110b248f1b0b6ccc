"""How many threads a command computes with: as many as pay for a model of this size.

Threads wait for each other after every product. In a small model a product takes less time than the wait,
and on a busy machine the wait can be many times longer. `python analyses/benchmark.py --only threads`
measures what threads are worth by shape. The process is the command's own, so its setting is ours to
change; in Python torch's setting is left as it was.
"""

import os

from ffnprobe.errors import OptionRefused

VARIABLE = "FFNPROBE_THREADS"
# More than any machine has: torch would start them all, or end the process.
MOST = 1024
# Up to so many parameters, at most so many threads; beyond, as many as torch has.
PAYING = ((20_000_000, 1), (200_000_000, 4))


def choose_threads(parameters: int, available: int) -> int:
    """Choose how many threads pay for a model of so many parameters."""
    most = next((threads for size, threads in PAYING if parameters <= size), available)
    return min(most, available)


def read_threads(given: int | None) -> int | None:
    """Return the number asked for: `--threads`, else `$FFNPROBE_THREADS`; None if neither is set."""
    text, named = (str(given), "--threads") if given is not None else ("", VARIABLE)
    text = text or os.environ.get(VARIABLE, "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > len(str(MOST)) or not 1 <= int(text) <= MOST:
        raise OptionRefused(
            f'{named} is "{text}", which is not a number of threads.', remedy=f"1 to {MOST}"
        )
    return int(text)


def use_threads(asked: int | None, parameters: int) -> None:
    """Let torch compute in this process with the threads asked for, else with what pays for the model."""
    import torch

    torch.set_num_threads(asked or choose_threads(parameters, torch.get_num_threads()))
