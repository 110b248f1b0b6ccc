"""The note under a figure's title: of which model, answer and prompt it is."""

from collections.abc import Sequence

from ffnprobe.models.provenance import Provenance
from ffnprobe.results import name_settings

TOKENS = 16


def say(provenance: Provenance) -> str:
    """Say what was asked, of which model, after which tokens, with which settings."""
    than = f" rather than {provenance.versus}" if provenance.versus else ""
    tokens = provenance.tokens or ()
    if provenance.position is not None:
        tokens = tokens[: provenance.position + 1]
    answer = f" {provenance.answer}{than}" if provenance.answer else ""
    after = f" after {join_tokens(tokens)}" if tokens else ""
    settings = f"; {known}" if (known := name_settings(provenance)) else ""
    return f"{provenance.model}:{answer}{after}{settings}"


def join_tokens(tokens: Sequence[str]) -> str:
    """Write a prompt's tokens, of a long one the last."""
    shown = " ".join(tokens[-TOKENS:])
    return shown if len(tokens) <= TOKENS else f"… {shown}"
