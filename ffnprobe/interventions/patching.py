"""Carry activations from one prompt into another: how much of the difference do they bring along?

With `d` the logit of the source's answer less that of the target's answer, a patch runs the target
again with some activations taken from the source, at the same layer and position, and

    carried = (d of the patched target − d of the target) / (d of the source − d of the target)

0: the patch changes nothing that matters; 1: it turns the target's answer wholly into the source's.
Exact, by replay. Both prompts must have as many tokens, so that positions correspond.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import (
    NEURONS,
    POSITIONS,
    SOURCE,
    SOURCE_ANSWER,
    TARGET,
    TARGET_ANSWER,
    Progress,
    Shown,
    verb,
)
from ffnprobe.documents.blocks import Block, Figure, Table, Words
from ffnprobe.errors import OptionRefused, PromptRefused
from ffnprobe.interventions.question import (
    Neurons,
    Positions,
    choose_neurons,
    choose_positions,
    choose_top,
)
from ffnprobe.interventions.replay import Readout, read_answer
from ffnprobe.interventions.sweeps import mark_sets, sweep_layers, sweep_neurons, sweep_sets
from ffnprobe.layout import lay_out_map
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_top
from ffnprobe.results import Result, Tables, name_question
from ffnprobe.tracing.trace import Trace

# Below this a difference in logits is rounding, and no share of it means anything.
LEAST_DIFFERENCE = 1e-3


@dataclass(frozen=True)
class Ends:
    """The logit of the source's answer less that of the target's, on each prompt as it is."""

    source: float
    target: float

    def share(self, changes: Tensor) -> Tensor:
        """Express changes of the target as shares of the way to the source."""
        return changes / (self.source - self.target)


@dataclass(frozen=True, eq=False, repr=False)
class Patches(Result):
    """What each neuron carries by itself (NaN where none was asked), and all of them together.

    >>> import ffnprobe as fp
    >>> texts = ["Michael Jordan plays the sport of", "Tom Watson plays the sport of"]
    >>> source, target = fp.run(fp.load("pocket"), texts)
    >>> found = fp.patch(source, target, " basketball", " golf", neurons=["L0"])
    >>> list(found.top(1).columns)[3:6]
    ['activation_source', 'activation_target', 'carried']
    """

    target: Trace
    ends: Ends
    carried: Float[Tensor, "layer neuron"]
    together: float
    activations_source: Float[Tensor, "layer neuron"]
    activations_target: Float[Tensor, "layer neuron"]
    positions: tuple[int, ...]
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say what is carried, and how much of it all neurons carry together."""
        return f"{name_question(self.provenance)}: all together carry {self.together:.3f}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        several = len(self.positions) > 1
        shown = "means over the positions patched" if several else "those at the position patched"
        return f"carried: the share of the difference; activations are {shown}; {self.provenance.describe()}"

    @property
    def table(self) -> pd.DataFrame:
        """The ten neurons that carry most."""
        return self.tables()["patches"]

    def tables(self, top: Shown = None) -> dict[str, pd.DataFrame]:
        """Name the table a file of these patches holds."""
        asked = int((~self.carried.isnan()).sum())
        return {"patches": self.top(choose_top(top, asked, is_all=asked == self.carried.numel()))}

    def top(self, top: int | None = 10) -> pd.DataFrame:
        """Table the `top` neurons that carry most of the difference."""
        columns = {
            "activation_source": self.activations_source,
            "activation_target": self.activations_target,
            "carried": self.carried,
        }
        listed = list_top(
            self.target.model, top, by=self.carried, columns=columns, signs=self.activations_source
        )
        return self.provenance.note(listed)


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
class LayerPatches(LayerMap):
    """What each MLP layer carries at each position.

    >>> import ffnprobe as fp
    >>> texts = ["Michael Jordan plays the sport of", "Tom Watson plays the sport of"]
    >>> source, target = fp.run(fp.load("pocket"), texts)
    >>> found = fp.patch_layers(source, target, " basketball", " golf")
    >>> list(found.table.columns)
    ['layer', 'position', 'token_source', 'token_target', 'carried']
    """

    ends: Ends
    carried: Float[Tensor, "layer pos"]
    tokens_source: tuple[str, ...]
    tokens_target: tuple[str, ...]
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say what is carried."""
        return f"{name_question(self.provenance)}: carried by each layer at each position"

    @property
    def table(self) -> pd.DataFrame:
        """Every layer and position, in order."""
        tokens = {"token_source": self.tokens_source, "token_target": self.tokens_target}
        positions = range(len(self.tokens_source))
        return self.provenance.note(table_map({"carried": self.carried}, tokens, positions))


@verb
@torch.no_grad()
def patch(
    source: Annotated[Trace, SOURCE],
    target: Annotated[Trace, TARGET],
    answer: Annotated[str | int, SOURCE_ANSWER],
    other_answer: Annotated[str | int, TARGET_ANSWER],
    *,
    neurons: Annotated[Neurons | None, NEURONS] = None,
    position: Annotated[Positions, POSITIONS.but("Positions to patch: -1, 3, 3,5 or all.")] = "all",
    progress: Progress | None = None,
) -> Patches:
    """Put each neuron's activation from one prompt into another (activation patching); 0 changes nothing, 1 the whole answer.

    One neuron at a time, and then all.

    >>> import ffnprobe as fp
    >>> texts = ["Michael Jordan plays the sport of", "Tom Watson plays the sport of"]
    >>> source, target = fp.run(fp.load("pocket"), texts)
    >>> fp.patch(source, target, " basketball", " golf", neurons=["L0"]).together > 0
    True
    """
    readout, ends = _prepare(source, target, answer, other_answer)
    positions = choose_positions(target, position)
    chosen = choose_neurons(target.model, neurons)
    alone = sweep_neurons(
        readout, source.activations, positions=positions, chosen=chosen, progress=progress
    )
    sets = mark_sets(target, chosen[None], positions)
    together = sweep_sets(readout, source.activations, sets, start=positions[0])
    # A sweep says what the target loses; here what it gains is asked for.
    return Patches(
        target=target,
        ends=ends,
        carried=ends.share(-alone.logit),
        together=float(ends.share(-together.logit)),
        activations_source=source.activations[:, positions].mean(dim=1),
        activations_target=target.activations[:, positions].mean(dim=1),
        positions=tuple(positions),
        provenance=readout.provenance(
            target, settings={"activations_from": source.prompt}, positions=positions
        ),
    )


@verb
@torch.no_grad()
def patch_layers(
    source: Annotated[Trace, SOURCE],
    target: Annotated[Trace, TARGET],
    answer: Annotated[str | int, SOURCE_ANSWER],
    other_answer: Annotated[str | int, TARGET_ANSWER],
    *,
    progress: Progress | None = None,
) -> LayerPatches:
    """Put a whole MLP layer's activations from one prompt into another, position by position.

    >>> import ffnprobe as fp
    >>> texts = ["Michael Jordan plays the sport of", "Tom Watson plays the sport of"]
    >>> source, target = fp.run(fp.load("pocket"), texts)
    >>> found = fp.patch_layers(source, target, " basketball", " golf")
    >>> found.carried.shape == (source.model.config.layers, 7)
    True
    """
    readout, ends = _prepare(source, target, answer, other_answer)
    effects = sweep_layers(readout, source.activations, progress=progress)
    return LayerPatches(
        ends=ends,
        carried=ends.share(-effects.logit),
        tokens_source=source.tokens,
        tokens_target=target.tokens,
        provenance=readout.provenance(target, settings={"activations_from": source.prompt}),
    )


def _prepare(
    source: Trace, target: Trace, answer: str | int, other_answer: str | int
) -> tuple[Readout, Ends]:
    if source.model.identity != target.model.identity:
        raise PromptRefused(
            f"the prompts were run on two models: {source.model.name} and {target.model.name}.",
            remedy="run both on one",
        )
    if len(source) != len(target):
        raise PromptRefused(
            f"the prompts are {len(source)} and {len(target)} tokens: "
            f"{' '.join(source.tokens)} / {' '.join(target.tokens)}.",
            remedy="two prompts of as many tokens, so that positions correspond",
        )
    readouts = [read_answer(trace, answer, versus=other_answer) for trace in (source, target)]
    ends = Ends(*(float(readout.clean().logit) for readout in readouts))
    if abs(ends.source - ends.target) < LEAST_DIFFERENCE:
        raise OptionRefused(
            f"both prompts favour the answer alike ({ends.target:+.4f} logits): nothing to carry.",
            remedy="prompts with different answers",
        )
    return readouts[1], ends
