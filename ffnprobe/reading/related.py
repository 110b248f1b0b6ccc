"""Related neurons: which ones an answer feeds, which feed a question, which have similar answers.

    feeds     later neurons m by q_m · w_n: how far this answer, read through the LayerNorm's gain,
              opens (or, where negative, closes) a later question, per unit of activation and scale
    fed_by    earlier neurons m by q_n · w_m, the same from the question's side
    similar   neurons m of any layer by cos(w_m, w_n)

Where neurons have gates, `opens` and `opened_by` are the same for gates instead of questions.

The first two are ordered by size, whatever the sign. They come from the weights alone: on a prompt
the LayerNorm's scale divides them, and attention also carries answers over from other positions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, linalg

from ffnprobe.arguments import TOP, Argument, verb
from ffnprobe.documents.blocks import Block, Table, Words
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId, split_position
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.projection import answer_tokens, check_top, sort_neurons
from ffnprobe.results import Result, Tables

if TYPE_CHECKING:
    import pandas as pd

TOKENS = 5
RELATIONS = {
    "feeds": "Its answer feeds the questions of",
    "fed_by": "Its question is fed by the answers of",
    "similar": "Its answer resembles those of",
    "opens": "Its answer feeds the gates of",
    "opened_by": "Its gate is fed by the answers of",
}


@dataclass(frozen=True, eq=False, repr=False)
class Related(Result):
    """The neurons related to one: each table has name, layer, neuron, dot, cosine, promotes.

    >>> import ffnprobe as fp
    >>> related = fp.read(fp.load("pocket"), "L3N12").related(3)
    >>> list(related.tables())
    ['feeds', 'fed_by', 'similar']
    """

    name: str
    feeds: "pd.DataFrame"
    fed_by: "pd.DataFrame"
    similar: "pd.DataFrame"
    provenance: Provenance
    opens: "pd.DataFrame | None" = None
    opened_by: "pd.DataFrame | None" = None

    def document(self, tables: Tables = None) -> Iterator[Block]:
        """Table each relation that has neurons, under what it is."""
        for relation, found in (self.tables() if tables is None else tables).items():
            if len(found):
                yield Table(found, RELATIONS[relation])
        yield Words("From the weights alone.", "soft")

    @property
    def title(self) -> str:
        """Name the neuron."""
        return f"neurons related to {self.name}"

    @property
    def table(self) -> "pd.DataFrame":
        """The later neurons whose question this answer feeds."""
        return self.feeds

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables; those of gates only where neurons have gates."""
        tables = {"feeds": self.feeds, "fed_by": self.fed_by, "similar": self.similar}
        if self.opens is not None and self.opened_by is not None:
            tables |= {"opens": self.opens, "opened_by": self.opened_by}
        return tables


@verb
def related(
    model: Model,
    neuron: Annotated[str, Argument("The neuron, such as L3N12.")],
    *,
    top: Annotated[int, TOP.but("How many neurons in each table.")] = 10,
) -> Related:
    """Find the neurons that one neuron feeds, is fed by, or resembles.

    >>> import ffnprobe as fp
    >>> found = fp.related(fp.load("pocket"), "L3N12", top=3)
    >>> bool((found.feeds.layer > 3).all() and (found.fed_by.layer < 3).all())
    True
    """
    return find_related(model, split_position(neuron)[0], top=top)


def find_related(model: Model, name: str, *, top: int = 10) -> Related:
    """Find the `top` neurons of each relation to the neuron named."""
    neuron = model.find_neuron(name)
    check_top(top, model.config.neurons - 1, of="other neurons")
    first = neuron.layer + 1
    question = model.questions[neuron.layer, neuron.neuron]
    answer = model.answers[neuron.layer, neuron.neuron]
    earlier = model.answers[: neuron.layer]
    dots, cosines = _compare(model.answers, answer)
    # A neuron is not listed as similar to itself.
    ranked = cosines.clone()
    ranked[neuron.layer, neuron.neuron] = -torch.inf
    feeds = _table_strongest(model, model.questions[first:], answer, top, first_layer=first)
    fed_by = _table_strongest(model, earlier, question, top)
    similar = _table(model, sort_neurons(ranked, top), dots, cosines)
    opens = opened_by = None
    if (gates := model.gates) is not None:
        opens = _table_strongest(model, gates[first:], answer, top, first_layer=first)
        opened_by = _table_strongest(model, earlier, gates[neuron.layer, neuron.neuron], top)
    provenance = model.provenance(settings={"related_to": str(neuron), "k": top})
    found = Related(str(neuron), feeds, fed_by, similar, provenance, opens, opened_by)
    for table in found.tables().values():
        provenance.note(table)
    return found


def _compare(
    rows: Float[Tensor, "layer neuron d_model"], one: Float[Tensor, " d_model"]
) -> tuple[Float[Tensor, "layer neuron"], Float[Tensor, "layer neuron"]]:
    """Return each row's dot product and cosine with one direction; cosine 0 where there is none."""
    dots = einsum(rows, one, "layer neuron d_model, d_model -> layer neuron")
    lengths = linalg.vector_norm(rows, dim=-1) * linalg.vector_norm(one)
    return dots, torch.where(lengths > 0, dots / lengths, 0.0)


def _table_strongest(
    model: Model,
    rows: Float[Tensor, "layer neuron d_model"],
    one: Float[Tensor, " d_model"],
    k: int,
    *,
    first_layer: int = 0,
) -> "pd.DataFrame":
    """Table the neurons of largest dot product, of either sign."""
    dots, cosines = _compare(rows, one)
    return _table(model, sort_neurons(dots.abs(), k), dots, cosines, first_layer=first_layer)


def _table(
    model: Model, order: list[NeuronId], dots: Tensor, cosines: Tensor, *, first_layer: int = 0
) -> "pd.DataFrame":
    picked = [one.layer for one in order], [one.neuron for one in order]
    names = [NeuronId(first_layer + one.layer, one.neuron) for one in order]
    columns = {
        "dot": dots[picked].tolist(),
        "cosine": cosines[picked].tolist(),
        "promotes": answer_tokens(model, names, min(TOKENS, model.config.vocab)) if names else [],
    }
    return list_neurons(model, names, columns)
