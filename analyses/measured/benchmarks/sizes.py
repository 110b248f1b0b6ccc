"""How much is measured: all of it, or a short form that only shows that every part still runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyses.measured.benchmarks.folders import GPT2_SMALL, SMOLLM2


@dataclass(frozen=True)
class Size:
    """The shapes that are measured, and how often."""

    plain: Mapping[str, Any]  # the model every part but `families` runs on
    gated: Mapping[str, Any]
    rounds: int = 15  # of what takes milliseconds
    loads: int = 3
    starts: int = 5  # of a process of its own
    sample: int = 48  # neurons of the hook loop
    rows: int = 512  # neurons surveyed the naive way
    facts: int = 200
    blocks: int = 6  # of texts in a scan
    block_tokens: int = 4092
    tokens: int = 100_000  # of the shorter of two scans, whose memory is compared
    clicks: int = 15
    seconds: float = 60  # of twenty users


FULL = Size(plain=GPT2_SMALL, gated=SMOLLM2)
SHORT = Size(
    # As GPT2_SMALL in miniature: BOS is an id that the tokenizer has no string for.
    plain={
        "model_type": "gpt2", "n_layer": 4, "n_head": 3, "n_embd": 48, "n_positions": 1024,
        "vocab_size": 1031, "bos_token_id": 1030,
    },
    gated=SMOLLM2
    | {
        "num_hidden_layers": 2, "hidden_size": 72, "intermediate_size": 128, "vocab_size": 1031,
    },
    rounds=1, loads=1, starts=1, sample=4, rows=8, facts=10, blocks=6, block_tokens=1023, tokens=1000,
    clicks=2, seconds=1,
)  # fmt: skip
