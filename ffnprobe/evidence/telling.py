"""An explanation told as a document: the verdict, the neurons, and folded behind them everything measured.

1. **The verdict**: how the model ranks the answer, which few neurons carry it, what happens without them;
   on a screen the prompt in colours and the curve.
2. **Ten rows**: where each neuron is, how good the evidence, how much, what it asks and says.
3. **The neurons as cards**: asks → says, examples, what it did here, who asked.
4. **The rest**, folded: every number, the prediction, the logit's parts, paths, the map, the curve.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ffnprobe.corpora.examples import Examples, examples
from ffnprobe.corpora.scans import embedded_scan
from ffnprobe.documents.blocks import (
    Beside,
    Block,
    Cards,
    Figure,
    OnScreen,
    Section,
    Table,
    Tokens,
    Words,
)
from ffnprobe.evidence.explanation import read_sites
from ffnprobe.layout import lay_out_map
from ffnprobe.reading.projection import list_sides, pick_read
from ffnprobe.reading.readings import ABOUT, Lists, table_lists
from ffnprobe.tracing.drivers import Drivers, drivers

if TYPE_CHECKING:
    from ffnprobe.evidence.explanation import Explanation

TOKENS = 8  # on a card
ASKED = 3  # parts of its score, on a card
EXAMPLES = 2  # of the strongest, on a card; the rest is folded
COLOURED = (
    "Colour: what the answer loses without the MLP layers at a token, added up (blue: they help, orange: they "
    "hinder)."
)
EVIDENCE = (
    "Three kinds of evidence, because each one alone can mislead: what the weights promote (z), what the neuron "
    "pushed here, and what the answer loses without it (effect)."
)
SUM = (
    "The answer's logit is a sum: every neuron, the embeddings and the biases each add a number, directly or "
    "carried there by attention, and nothing is left out. The neurons listed come first."
)
PATHS = (
    "What a neuron writes at an earlier token reaches the answer through attention heads. These are the "
    "strongest such paths: the token, the neuron, the head that carried most of it, the answer."
)
UNMEASURED = " Only the subject and the last token were measured; ablate-layers measures all."
MAP = (
    "All neurons of one layer are removed at one token, and the rest of the model runs again. At the last token "
    "the answer is assembled. Large numbers at earlier tokens are where the model looks up what it knows about "
    "them."
)


def tell(explained: "Explanation") -> Iterator[Block]:
    """Tell an explanation in the order it is read."""
    yield Words(explained.standing, "strong")
    yield from map(Words, explained.verdict)
    yield OnScreen(partial(_colour, explained))
    yield Table(explained.shown, has_cards=True)
    yield from map(Words, explained.remarks)
    yield Words(explained.how_to_read, "soft")
    yield OnScreen(
        lambda: [Words(ABOUT), Section("The neurons, one by one", lambda: [_cards(explained)])]
    )
    for name, (title, told) in REST.items():
        yield Section(title, partial(told, explained), is_folded=True, anchor=name)


def _colour(explained: "Explanation") -> Iterator[Block]:
    """Colour the prompt by what the layers at each token are worth, and draw the curve."""
    effects = explained.position_effects
    yield Tokens(explained.trace.tokens, None if explained.map is None else effects)
    if explained.map is not None:
        yield Words(COLOURED + (UNMEASURED if None in effects else ""), "soft")
    if explained.curve is not None and len(explained.curve.table):
        yield Figure(explained, "curve")


def _evidence(explained: "Explanation") -> Iterator[Block]:
    yield Words(f"{EVIDENCE} {explained.graded}.")
    yield Table(explained.neurons)
    if "effect" in explained.neurons:
        yield Figure(explained, "evidence")


def _curve(explained: "Explanation") -> Iterator[Block]:
    if explained.curve is not None and len(explained.curve.table):
        yield Table(explained.curve.table)
        yield Table(explained.curve.sites, "the neurons, in the order they are removed")


def _account(explained: "Explanation") -> Iterator[Block]:
    yield Words(SUM)
    yield Figure(explained, "account", instead=Table(explained.parts))
    yield Figure(explained, "layers")


def _paths(explained: "Explanation") -> Iterator[Block]:
    if len(explained.paths):
        yield Words(PATHS)
        yield Figure(explained, "paths")
        yield Table(explained.paths)


def _map(explained: "Explanation") -> Iterator[Block]:
    if explained.map is not None:
        yield Words(MAP + (UNMEASURED if None in explained.position_effects else ""))
        yield Figure(explained, "map", instead=Table(lay_out_map(explained.map), is_whole=True))


def _others(explained: "Explanation") -> list[Block]:
    contrast = explained.question.contrast
    return [] if contrast is None else [Words(other.prompt) for other in contrast.others]


# What is folded, by its anchor, in its order; a part that has nothing to say is left out.
REST: dict[str, tuple[str, Callable[["Explanation"], Iterable[Block]]]] = {
    "numbers": ("The evidence, every number", _evidence),
    "pieces": (
        "The same neurons, piece by piece (logits)",
        lambda explained: [] if explained.pieces is None else [Table(explained.pieces)],
    ),
    "against": (
        "What holds the answer back",
        lambda explained: [Table(explained.against)] if len(explained.against) else [],
    ),
    "curve": ("What it becomes without the first neurons", _curve),
    "predictions": (
        "What the model predicts next",
        lambda explained: [
            Figure(
                explained, "predictions", instead=Table(explained.predictions.drop(columns="id"))
            )
        ],
    ),
    "account": ("What makes up the answer's logit", _account),
    "paths": ("How it got there, through attention (logits)", _paths),
    "map": ("Where the MLP layers matter (logits)", _map),
    "others": ("The prompts it was compared with", _others),
    "settings": ("How it was measured", lambda explained: [Words(f"{explained.settings}.")]),
}


def _cards(explained: "Explanation") -> Cards:
    """Make a card of each neuron: what it asks and says, what it did here, who asked, examples."""
    model = explained.trace.model
    names = [name for name, _ in read_sites(explained.neurons)]
    asked = ("gate", "question") if model.config.is_gated else ("question",)
    read = {by: pick_read(model, names, by=by) for by in (*asked, "answer")}
    lists = list_sides(model, read, min(TOKENS, model.config.vocab))
    scan = explained.options.scan or embedded_scan(model)
    sections = []
    rows = zip(
        explained.shown.to_dict("records"), explained.neurons.to_dict("records"), strict=True
    )
    for number, (shown, row) in enumerate(rows):
        quoted = None if scan is None else examples(scan, row["name"])
        sides = {side: every[number] for side, every in lists.items()}
        card = partial(_card, explained, shown, row, sides, quoted)
        title = f"{shown['name']} at {row['token']}"
        sections.append(Section(title, card, anchor=shown["name"], mark=row["grade"]))
    return Cards(sections)


def _card(
    explained: "Explanation", shown: dict[Any, Any], row: dict[Any, Any], lists: Lists,
    quoted: Examples | None,
) -> Iterator[Block]:  # fmt: skip
    yield Words(f"{shown['asks']} → {shown['says']}", "strong")
    if row.get("label"):
        yield Words(f"{row['label']} (F1 {row['label_f1']:.2f})")
    yield Words(_say(str(explained.provenance.answer), row))
    asked = drivers(explained.trace, row["name"], position=row["position"])
    first = asked.table.head(ASKED)
    parts = [f"{part} ({drive:+.2f})" for part, drive in zip(first.part, first.drive, strict=True)]
    yield Words(f"Asked by {', '.join(parts)} of a score of {asked.score:+.2f}.")
    if quoted is not None:
        yield from quoted.quotes("strongest", EXAMPLES)
    yield Section(
        "more of it", partial(_detail, explained, row, lists, asked, quoted), is_folded=True
    )


def _say(answer: str, row: dict[Any, Any]) -> str:
    """Say in sentences what a neuron did."""
    removed = f"; removed, it is set to {row['set_to']:.3f}" if "set_to" in row else ""
    most = f" (most by {row['through']})" if row["through"] else ""
    effect = f"; without it {answer} loses {row['effect']:.3f}" if "effect" in row else ""
    negative = " The activation is negative: here the neuron adds the negative of its answer."
    return (
        f"Its activation is {row['activation']:.3f}{removed}. It pushed {answer} by {row['push']:+.3f} "
        f"logits directly, by {row['push_through_attention']:+.3f} through attention{most}{effect}. "
        f"By its weights the token stands out by z = {row['z']:.2f}."
        f"{negative if row['activation'] < 0 else ''}"
    )


def _detail(
    explained: "Explanation", row: dict[Any, Any], lists: Lists, asked: Drivers,
    quoted: Examples | None,
) -> Iterator[Block]:  # fmt: skip
    """Show the neuron over the text, its lists with their values, who asked, more examples."""
    trace = explained.trace
    yield Tokens(trace.tokens, trace.activations[row["layer"], :, row["neuron"]].tolist())
    yield Words("The text is coloured by the neuron's activation at each token.", "soft")
    yield Beside([*table_lists(lists), *_ask(asked)])
    if quoted is not None:
        yield from quoted.quote()


def _ask(asked: Drivers) -> Iterable[Table]:
    """List who asked: the strongest parts of the stream and earlier neurons, by their share in the score."""
    for side in filter(None, (asked, asked.gate)):
        of = "" if side.asks == "question" else f" of the {side.asks}"
        parts = side.table.head(TOKENS)[["part", "drive"]]
        yield Table(parts, f"who asked{of}: parts of its score {side.score:+.3f}")
        if earlier := side.account.neurons.numel():
            neurons = side.top(min(TOKENS, earlier))[["name", "drive"]]
            yield Table(neurons, f"earlier neurons that asked{of}")
