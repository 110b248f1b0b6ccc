"""Each piece of an answer of several tokens by itself; pushes and effects add up over the pieces."""

from typing import TYPE_CHECKING

from ffnprobe.evidence.query import Query
from ffnprobe.evidence.together import read_sources
from ffnprobe.interventions.group_changes import sweep_changes
from ffnprobe.interventions.readout import Readout
from ffnprobe.interventions.replay import Replay

if TYPE_CHECKING:
    import pandas as pd


def table_pieces(query: Query, listed: "pd.DataFrame") -> "pd.DataFrame | None":
    """Table what the listed neurons push and cost each piece; None for an answer of one token."""
    import pandas as pd

    if len(query.pieces) == 1:
        return None
    sources, frames = read_sources(listed), []
    for piece, owners in zip(query.pieces, query.owners, strict=True):
        own = listed[["name", "layer", "neuron", "position", "token"]].copy()
        own.insert(0, "piece", query.trace.model.vocab.show(piece.answer))
        own["push"] = [
            float(
                piece.values[name.layer, name.neuron]
                if position == piece.position
                else owners.through[name.layer, position, name.neuron]
            )
            for name, position in sources
        ]
        if "effect" in listed:
            readout = Readout(
                Replay(piece.trace), (piece.answer,), None, piece.position, False, piece.convention
            )
            effects = sweep_changes(readout, [[query.change(source)] for source in sources])
            own["effect"] = effects.logit.double().numpy()
        frames.append(own)
    return pd.concat(frames, ignore_index=True)
