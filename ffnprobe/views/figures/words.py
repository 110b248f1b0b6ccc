"""The note under a figure's title: its model, answer and prompt."""

from collections.abc import Sequence

from ffnprobe.provenance import Provenance
from ffnprobe.results import name_settings

TOKENS = 16


def say(provenance: Provenance) -> str:
    """Name the answer, the model, the prompt and the settings."""
    than = f" rather than {provenance.versus}" if provenance.versus else ""
    tokens = provenance.tokens or ()
    if provenance.position is not None:
        tokens = tokens[: provenance.position + 1]
    answer = f" {provenance.answer}{than}" if provenance.answer else ""
    after = f" after {join_tokens(tokens)}" if tokens else ""
    settings = f"; {known}" if (known := name_settings(provenance)) else ""
    return f"{provenance.model}:{answer}{after}{settings}"


def join_tokens(tokens: Sequence[str]) -> str:
    """Write a prompt's tokens; of a long prompt the last ones."""
    shown = " ".join(tokens[-TOKENS:])
    return shown if len(tokens) <= TOKENS else f"… {shown}"
