"""Remove whole MLP layers, position by position: what the answer loses, as a grid of layers and tokens.

`patching` shows what layers carry in the same grid.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import (
    CONTRAST,
    REPLACE,
    Answer,
    Convention,
    LogProbability,
    Progress,
    Versus,
    verb,
)
from ffnprobe.documents.blocks import Block, Figure, Table, Words
from ffnprobe.interventions.question import Counterfactual, Replace, ask
from ffnprobe.interventions.replay import AnswerValues
from ffnprobe.interventions.sweeps import sweep_layers
from ffnprobe.layout import lay_out_map
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result, Tables, name_question, name_settings
from ffnprobe.tracing.contrast import Contrast, Prompts
from ffnprobe.tracing.trace import Trace


class EffectResult(Result):
    """A result that says what an answer loses without neurons."""

    @property
    def title(self) -> str:
        """Say which answer, after what."""
        return f"effects on {name_question(self.provenance)}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        meaning = "effect: what the answer loses when the neurons are removed, in logits"
        return f"{meaning}; {name_settings(self.provenance)}"


class LayerMap(Result):
    """A result of which each layer and position has a number, read as a grid."""

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the table a file of this result holds."""
        return {"map": self.table}

    def document(self, tables: Tables = None) -> Iterator[Block]:
        """Show a row for each layer and a column for each token; the table is folded."""
        table = (self.tables() if tables is None else tables)["map"]
        tokens = table.rename(columns={"token_target": "token"})
        grid = lay_out_map(tokens, "carried" if "carried" in table else "effect")
        yield Figure(self, instead=Table(grid, is_whole=True))
        yield Words(self.caption, "soft")
        yield from self.fold(tables)


def table_map(
    columns: Mapping[str, Float[Tensor, "layer pos"]],
    tokens: Mapping[str, tuple[str, ...]],
    positions: Sequence[int],
) -> pd.DataFrame:
    """Table every layer at each of the positions in order, with the tokens that stand there."""
    layers = range(len(next(iter(columns.values()))))
    cells = pd.MultiIndex.from_product([layers, positions], names=["layer", "position"])
    frame = cells.to_frame(index=False)
    for name, shown in tokens.items():
        frame[name] = [*shown] * len(layers)
    for name, values in columns.items():
        frame[name] = values.double().ravel().numpy()
    return frame


@dataclass(frozen=True, eq=False, repr=False)
class LayerEffects(LayerMap, EffectResult):
    """What the answer loses without each MLP layer's neurons at each of some positions.

    `tokens` are those at the positions.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.ablate_layers(trace, " basketball").table.columns.tolist()[:4]
    ['layer', 'position', 'token', 'effect']
    """

    values: Float[Tensor, "layer pos"]
    log_probability: Float[Tensor, "layer pos"] | None
    positions: tuple[int, ...]
    tokens: tuple[str, ...]
    clean: AnswerValues
    provenance: Provenance

    @property
    def table(self) -> pd.DataFrame:
        """Every layer and position, in order."""
        columns = {"effect": self.values}
        if self.log_probability is not None:
            columns["log_probability_effect"] = self.log_probability
        return self.provenance.note(table_map(columns, {"token": self.tokens}, self.positions))


@verb
@torch.no_grad()
def ablate_layers(
    trace: Trace,
    answer: Answer = None,
    *,
    versus: Versus = None,
    replace: Annotated[Replace | None, REPLACE] = None,
    contrast: Annotated[Contrast | Prompts | None, CONTRAST] = None,
    log_probability: LogProbability = True,
    convention: Convention = "centred",
    progress: Progress | None = None,
) -> LayerEffects:
    """Ablate whole MLP layers, position by position, and measure what the answer loses.

    The layer's bias b_out belongs to no neuron and stays.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.ablate_layers(trace, " basketball").values.shape == (trace.model.config.layers, 7)
    True
    """
    question = ask(
        trace, answer, versus=versus, replace=replace, contrast=contrast, convention=convention
    )
    return map_layers(question, log_probability=log_probability, progress=progress)


def map_layers(
    question: Counterfactual,
    *,
    positions: Sequence[int] | None = None,
    log_probability: bool = False,
    progress: Progress | None = None,
) -> LayerEffects:
    """Remove every MLP layer at positions, by default all."""
    trace, readout = question.trace, question.read(log_probability=log_probability)
    chosen = tuple(positions or range(len(trace)))
    clean = readout.clean()
    effects = sweep_layers(readout, question.replacement, positions=chosen, progress=progress)
    return LayerEffects(
        values=effects.logit,
        log_probability=effects.log_probability,
        positions=chosen,
        tokens=tuple(trace.tokens[position] for position in chosen),
        clean=clean,
        provenance=question.provenance(),
    )
