"""Search neurons by token: which push toward it, with hub neurons discounted.

Some neurons have a large dot product with almost every token: ranked by it, these hubs top every
list. The default rank is therefore z, how unusual a token is for the neuron:

    z = (w_n · u_t − mean over tokens) / std over tokens        (answers)
    z = (q_n · W_E[t] − mean over tokens) / std over tokens     (questions)

The mean and the standard deviation follow from the covariance of the tokens (`spectrum`), without
projecting every neuron onto every token. `dot` (for answers less its mean over tokens, as `read`
shows it) and `cosine`, of w_n and u_t or of q_n and W_E[t], have columns of their own.

Several tokens are searched for jointly. In each of the three columns a neuron has its value for the
token it pushes least, and there is one more column with z for each token.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from einops import reduce

from ffnprobe.arguments import RANKS, SIDES, TOP, Argument, Layers, Option, verb
from ffnprobe.errors import OptionRefused, TokenNotFound
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.projection import (
    check_top,
    list_own_tokens,
    pick_rows,
    sort_neurons,
)
from ffnprobe.reading.spectrum import compare_tokens
from ffnprobe.results import Result

if TYPE_CHECKING:
    import pandas as pd

TOKENS = 5


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
    layer_rows = {layer: pick_rows(model, layer, by=by) for layer in {n.layer for n in neurons}}
    rows = torch.stack([layer_rows[n.layer][n.neuron] for n in neurons])
    k, is_suppressing = min(TOKENS, model.config.vocab), away and by == "answer"
    own_tokens = list_own_tokens(model, rows, k, by=by, smallest=is_suppressing)
    table[name_own_tokens(by=by, away=away)] = [" ".join(row) for row in own_tokens]
    settings: dict[str, Setting] = {"by": by, "rank": rank, "away": away, "layers": list(chosen)}
    if named is not None:
        settings["among"] = len(named)
    provenance = model.provenance(
        convention="centred" if by == "answer" else "embed", tokens=tuple(shown), settings=settings
    )
    return Search(provenance.note(table), provenance)
