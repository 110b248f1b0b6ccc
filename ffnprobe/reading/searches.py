"""Search neurons by token, with hub neurons discounted, or by another neuron.

Some neurons have a large dot product with almost every token: ranked by it, these hubs top every
list. The default rank is therefore z, how unusual a token is for the neuron:

    z = (w_n · u_t − mean over tokens) / std over tokens        (answers)
    z = (q_n · W_E[t] − mean over tokens) / std over tokens     (questions)

The mean and the standard deviation follow from the covariance of the tokens (`spectrum`), without
projecting every neuron onto every token. `dot` (for answers less its mean over tokens, as `read`
shows it) and `cosine`, of w_n and u_t or of q_n and W_E[t], have columns of their own.

Several tokens are searched for jointly. In each of the three columns a neuron has its value for the
token it pushes least, and there is one more column with z for each token.

Neurons related to another are found by its question and answer:

    feeds     later neurons m by q_m · w_n: how far this answer, read through the LayerNorm's gain,
              opens (or, where negative, closes) a later question, per unit of activation and scale
    fed_by    earlier neurons m by q_n · w_m, the same from the question's side
    similar   neurons m of any layer by cos(w_m, w_n)

Where neurons have gates, `opens` and `opened_by` are the same for gates instead of questions.

The first two are ordered by size, whatever the sign. They come from the weights alone: on a prompt
the LayerNorm's scale divides them, and attention also carries answers over from other positions.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from einops import einsum, reduce
from jaxtyping import Float
from torch import Tensor, linalg

from ffnprobe.arguments import RANKS, SIDES, TOP, Argument, Layers, Option, verb
from ffnprobe.documents.blocks import Block, Table, Words
from ffnprobe.errors import OptionRefused, TokenNotFound
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId, split_position
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.reading.neuron_tables import TOKENS, list_neurons
from ffnprobe.reading.projection import (
    check_top,
    list_own_tokens,
    sort_neurons,
)
from ffnprobe.reading.spectrum import compare_tokens
from ffnprobe.results import Result, Tables

if TYPE_CHECKING:
    import pandas as pd

RELATIONS = {
    "feeds": "Its answer feeds the questions of",
    "fed_by": "Its question is fed by the answers of",
    "similar": "Its answer resembles those of",
    "opens": "Its answer feeds the gates of",
    "opened_by": "Its gate is fed by the answers of",
}


@dataclass(frozen=True, eq=False, repr=False)
class Search(Result):
    """The neurons found for tokens, the best first: `table` has one row each.

    >>> import ffnprobe as fp
    >>> found = fp.search(fp.load("pocket"), " basketball", top=3)
    >>> found
    Search(neurons that push toward ␣basketball)
    >>> found.top(1).name[0], found.rank
    ('L3N361', 'z')
    """

    table: "pd.DataFrame"
    provenance: Provenance

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.table.itertuples(index=False))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens searched for, in their shown form."""
        return self.provenance.tokens or ()

    @property
    def by(self) -> str:
        """What was compared with the tokens: `answer`, `question` or `gate`."""
        return str(self.provenance.settings["by"])

    @property
    def rank(self) -> str:
        """The column that decides the order: `z`, `cosine` or `dot`."""
        return str(self.provenance.settings["rank"])

    @property
    def is_away(self) -> bool:
        """Whether neurons that push against the tokens were searched for."""
        return bool(self.provenance.settings["away"])

    @property
    def own_tokens(self) -> str:
        """The column that lists each neuron's own tokens."""
        return name_own_tokens(by=self.by, away=self.is_away)

    @property
    def title(self) -> str:
        """Say what was searched for."""
        if self.by == "answer":
            way = f"that push {'against' if self.is_away else 'toward'}"
        else:
            way = f"whose {self.by} is {'closed' if self.is_away else 'opened'} by"
        return f"neurons {way} {' '.join(self.tokens)}"

    @property
    def caption(self) -> str:
        """How the neurons were compared."""
        settings = self.provenance.settings
        layers = settings["layers"]
        first, last = (layers[0], layers[-1]) if isinstance(layers, list) and layers else (0, 0)
        among = f", among {settings['among']} neurons" if "among" in settings else ""
        return (
            f"{self.by}s ranked by {self.rank}, {self.provenance.convention}; "
            f"layers {first} to {last}{among}"
        )

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the table: the neurons."""
        return {"neurons": self.table}

    def top(self, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` best neurons."""
        return self.table.head(check_top(top, len(self), of="neurons found"))


def name_own_tokens(*, by: str, away: bool) -> str:
    """Name the column of the tokens that stand for each neuron found."""
    if by != "answer":
        return f"{by}_tokens"
    return "suppresses" if away else "promotes"


@verb
def search(
    model: Model,
    tokens: Annotated[
        str | Sequence[str],
        Argument(
            'Single tokens, such as " basketball".', list[str], metavar="TOKEN…", longest=50
        ),
    ],
    *,
    rank: Annotated[
        str, Option("What to rank by; dot and cosine put hub neurons first.", choices=RANKS)
    ] = "z",
    away: Annotated[bool, Option("Find neurons that suppress the tokens.")] = False,
    by: Annotated[
        str,
        Option("Search answers, questions, or the gates of gated neurons.", choices=SIDES),
    ] = "answer",
    top: Annotated[int, TOP] = 10,
    layers: Layers = None,
    among: Annotated[
        Iterable[str] | None,
        Option(
            "Only neurons of this kind (runs a survey first).",
            Literal["entropy", "prediction", "suppression", "partition", "unlabelled"] | None,
            name="kind",
        ),
    ] = None,
) -> Search:  # fmt: skip
    """Find the neurons that promote tokens; hub neurons are discounted.

    They are ranked by their vocabulary projection. `by="question"` finds the neurons that the tokens
    open, `by="gate"` those whose gate they open, where neurons have gates. `among` names the only
    neurons to look at, such as those of one kind in a survey; if there are fewer than k, all are
    listed. Columns of `table`: name, layer, neuron, z, dot, cosine, z of each token if there are
    several, and the neuron's own tokens.

    >>> import ffnprobe as fp
    >>> fp.search(fp.load("pocket"), [" basketball", " football"], top=2).table.name.tolist()
    ['L1N677', 'L1N176']
    """
    texts = [tokens] if isinstance(tokens, str) else list(tokens)
    if not texts:
        raise TokenNotFound("no token is named.", remedy='" basketball"')
    ids = [model.vocab.one(text, use="a search") for text in texts]
    chosen = model.find_layers(layers)
    named = None if among is None else model.find_neurons(among)
    check_top(top, len(chosen) * model.config.d_mlp, of="neurons")
    with torch.no_grad():
        values = compare_tokens(model, ids, by=by, layers=chosen)
        weakest = {
            name: reduce(each, "token layer neuron -> layer neuron", "max" if away else "min")
            for name, each in values.items()
        }
    ranked = weakest[rank]
    if named is None:
        order = sort_neurons(ranked, top, smallest=away)
    else:  # counted, as the values are, among the layers chosen
        allowed = {NeuronId(chosen.index(n.layer), n.neuron) for n in named if n.layer in chosen}
        if not allowed:
            raise OptionRefused("no neuron of these layers is among those named.")
        every = sort_neurons(ranked, ranked.numel(), smallest=away)
        order = [one for one in every if one in allowed][:top]
    neurons = [NeuronId(chosen[one.layer], one.neuron) for one in order]
    picked = [one.layer for one in order], [one.neuron for one in order]
    table = list_neurons(model, neurons, {name: weakest[name][picked].tolist() for name in RANKS})
    shown = model.vocab.show_all(ids)
    if len(ids) > 1:
        for token, each in zip(shown, values["z"], strict=True):
            table[f"z of {token}"] = each[picked].tolist()
    k, is_suppressing = min(TOKENS, model.config.vocab), away and by == "answer"
    own_tokens = list_own_tokens(model, neurons, k, by=by, smallest=is_suppressing)
    table[name_own_tokens(by=by, away=away)] = [" ".join(row) for row in own_tokens]
    settings: dict[str, Setting] = {"by": by, "rank": rank, "away": away, "layers": list(chosen)}
    if named is not None:
        settings["among"] = len(named)
    provenance = model.provenance(
        convention="centred" if by == "answer" else "embed", tokens=tuple(shown), settings=settings
    )
    return Search(provenance.note(table), provenance)


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
        for relation, table in (self.tables() if tables is None else tables).items():
            if len(table):
                yield Table(table, RELATIONS[relation])
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
    feeds = _table_strongest(model, model.questions[first:], answer, top, first_layer=first)
    fed_by = _table_strongest(model, earlier, question, top)
    similar = _table_strongest(model, model.answers, answer, top, alike_to=neuron)
    opens = opened_by = None
    if (gates := model.gates) is not None:
        opens = _table_strongest(model, gates[first:], answer, top, first_layer=first)
        opened_by = _table_strongest(model, earlier, gates[neuron.layer, neuron.neuron], top)
    provenance = model.provenance(settings={"related_to": str(neuron), "k": top})
    related = Related(str(neuron), feeds, fed_by, similar, provenance, opens, opened_by)
    for table in related.tables().values():
        provenance.note(table)
    return related


def _table_strongest(
    model: Model,
    rows: Float[Tensor, "layer neuron d_model"],
    one: Float[Tensor, " d_model"],
    k: int,
    *,
    first_layer: int = 0,
    alike_to: NeuronId | None = None,
) -> "pd.DataFrame":
    """Table the neurons of largest dot product, of either sign, or those most alike to a neuron."""
    dots = einsum(rows, one, "layer neuron d_model, d_model -> layer neuron")
    lengths = linalg.vector_norm(rows, dim=-1) * linalg.vector_norm(one)
    cosines = torch.where(lengths > 0, dots / lengths, 0.0)
    ranked = dots.abs()
    if alike_to is not None:
        ranked = cosines.clone()
        ranked[alike_to.layer, alike_to.neuron] = -torch.inf  # not the neuron itself
    order = sort_neurons(ranked, k)
    picked = [one.layer for one in order], [one.neuron for one in order]
    names = [NeuronId(first_layer + one.layer, one.neuron) for one in order]
    columns = {
        "dot": dots[picked].tolist(),
        "cosine": cosines[picked].tolist(),
        "promotes": list_own_tokens(model, names, min(TOKENS, model.config.vocab)) if names else [],
    }
    return list_neurons(model, names, columns)
