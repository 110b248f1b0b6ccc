"""The evidence for one answer, as tables that can be read, saved and drawn."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from ffnprobe.corpora.scans import Scan
from ffnprobe.documents.blocks import Block
from ffnprobe.documents.html import write_card
from ffnprobe.documents.text import write_text
from ffnprobe.evidence.curve import RANK_SAID, Curve, list_largest, percent
from ffnprobe.interventions.ablation import map_layers
from ffnprobe.interventions.question import Counterfactual, Replace
from ffnprobe.interventions.replay import Readout, Replay
from ffnprobe.interventions.sweeps import sweep_changes
from ffnprobe.names import NeuronId, Site
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import Values, list_neurons
from ffnprobe.results import Result, Tables, name_question, name_settings
from ffnprobe.tracing.attribution import Pushes, PushesByPiece
from ffnprobe.tracing.trace import Trace, find_sinks

if TYPE_CHECKING:
    import pandas as pd

PREDICTIONS, PATHS = 5, 10
QUIET = 3  # named in a remark
GRADES = "grade A: weights, push and effect agree, B: two of them, C: one, ?: near its bar"
# Up to so many parameters, the map of layers is measured at every position.
SMALL = 20_000_000


@dataclass(frozen=True, eq=False)
class ExplainOptions:
    """How an explanation was asked for: the options of `explain`."""

    top: int
    bos: bool | None
    replace: Replace | None
    convention: str
    scan: Scan | None
    effects: bool
    seed: int
    contrast: tuple[str, ...] | str | None = None
    subject: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Result):
    """Why the model said an answer: which few neurons carry it, the evidence for each, and where it is from.

    neurons       the neurons that matter most, graded: the verdict's in its order, then by their effects
    against       the neurons that hold the answer back most: without them it gains (effect below 0)
    curve         what the answer becomes without the first n of them (None: effects were not asked for)
    worth         what all MLP neurons together are worth here, in logits (or None)
    subject       the positions that the prompt is about, and where neurons are looked for first

    Measured when first read:

    predictions   the likeliest next tokens
    map           layer × position: what the answer loses without an MLP layer there. All positions of a
                  small model, else the subject and the last (None: effects were not asked for)
    parts         who carries the answer's logit; adds up to it
    paths         the strongest paths: neuron at an earlier position, head that carried it, answer
    pieces        of an answer of several tokens: each piece's own pushes and effects (or None)

    >>> import ffnprobe as fp
    >>> found = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", " basketball", top=3)
    >>> list(found.tables())
    ['neurons', 'against', 'curve', 'predictions', 'map', 'parts', 'paths', 'sites']
    """

    question: Counterfactual
    neurons: "pd.DataFrame"
    against: "pd.DataFrame"
    subject: tuple[int, ...]
    provenance: Provenance
    options: ExplainOptions
    curve: Curve | None = None
    worth: float | None = None

    def document(self, tables: Tables = None) -> Iterator[Block]:
        """Tell it: the verdict, ten rows, cards, and folded behind them everything measured."""
        from ffnprobe.evidence.telling import tell

        return tell(self)

    def __str__(self) -> str:
        return write_text("", self.document())

    def _repr_html_(self) -> str:
        return write_card("", self.document())

    @property
    def trace(self) -> Trace:
        """The prompt's run."""
        return self.question.trace

    @property
    def pushes(self) -> Pushes | PushesByPiece:
        """What every part pushed toward the answer."""
        return self.question.pushes

    @cached_property
    def predictions(self) -> "pd.DataFrame":
        """The likeliest next tokens."""
        many = min(PREDICTIONS, self.trace.model.config.vocab)
        return self.provenance.note(self.trace.predictions(many))

    @cached_property
    def map(self) -> "pd.DataFrame | None":
        """What the answer loses without an MLP layer, by layer and position."""
        if not self.options.effects:
            return None
        config, every = self.trace.model.config, range(len(self.trace))
        is_small = config.parameters() <= SMALL
        positions = every if is_small else sorted({*self.subject, self.question.position})
        return self.provenance.note(map_layers(self.question, positions=positions).table)

    @cached_property
    def parts(self) -> "pd.DataFrame":
        """Who carries the answer's logit; the rows add up to it."""
        return self.provenance.note(_table_shares(self.question, self.neurons, self.subject))

    @cached_property
    def paths(self) -> "pd.DataFrame":
        """The strongest paths from a neuron at an earlier position through a head to the answer.

        Attention sinks are left out. `through` carried most of the push, `carried` so much.
        """
        trace, pushes = self.trace, self.question.attention_pushes.clone()
        pushes[:, [*find_sinks(trace.activations), self.question.position]] = 0
        sites = list_largest(pushes.abs(), PATHS)
        heads = self.question.name_heads(sites)
        columns: dict[str, Values] = {
            "activation": trace.activations, "push_through_attention": pushes,
            "through": [head for head, _ in heads], "carried": [carried for _, carried in heads],
        }  # fmt: skip
        return self.provenance.note(
            list_neurons(self.trace.model, sites, columns, tokens=trace.tokens)
        )

    @cached_property
    def pieces(self) -> "pd.DataFrame | None":
        """What the neurons push and cost each token of the answer; None for an answer of one token."""
        import pandas as pd

        if len(self.question.pieces) == 1:
            return None
        sites, frames, question = read_sites(self.neurons), [], self.question
        changes = [[question.change(site)] for site in sites]
        for piece, owners in zip(question.pieces, question.owners, strict=True):
            direct = torch.zeros_like(owners.through)
            direct[:, piece.position] = piece.values
            columns: dict[str, Values] = {
                "piece": self.trace.model.vocab.show(piece.answer), "push": direct,
                "push_through_attention": owners.through,
            }  # fmt: skip
            if "effect" in self.neurons:
                replay, token = Replay(piece.trace), (piece.answer,)
                readout = Readout(replay, token, None, piece.position, False, piece.convention)
                columns["effect"] = sweep_changes(readout, changes).logit
            frames.append(list_neurons(self.trace.model, sites, columns, tokens=self.trace.tokens))
        return self.provenance.note(pd.concat(frames, ignore_index=True))

    @property
    def rank(self) -> int:
        """The answer's rank among all tokens; of several pieces, the worst."""
        return max(piece.rank for piece in self.pushes.pieces)

    @property
    def probability(self) -> float:
        """The answer's probability; of several pieces, all of them one after the other."""
        return math.exp(self.pushes.log_probability)

    @property
    def logit(self) -> float:
        """The answer's logit (with a rival, its lead); of several pieces, their sum."""
        return sum(piece.logit for piece in self.pushes.pieces)

    @property
    def position_effects(self) -> list[float | None]:
        """What the answer loses without MLP layers at each position, added up over layers; None: not measured."""
        if self.map is None:
            return [None] * len(self.trace)
        effects = self.map.groupby("position").effect.sum().to_dict()
        return [effects.get(position) for position in range(len(self.trace))]

    @property
    def standing(self) -> str:
        """Say how the model ranks the answer after the prompt, and whether it would give it at all."""
        answer, versus = self.provenance.answer, self.provenance.versus
        than = f" rather than {versus}" if versus else ""
        rank = f"rank {self.rank:,} of {len(self.trace.model.vocab):,}"
        doubt = ": an answer that the model would not give" if self.rank > RANK_SAID else ""
        return f'{answer}{than}, {percent(self.probability)}, {rank}, after "{self.trace.prompt}"{doubt}'

    @property
    def verdict(self) -> tuple[str, ...]:
        """Say in sentences which few neurons carry the answer; nothing where effects were not asked for."""
        return () if self.curve is None else self.curve.verdict

    @property
    def graded(self) -> str:
        """Count the grades, and say what they count."""
        many = self.neurons.grade.str[:1].value_counts()
        counts = [f"{letter} {many[letter]}" for letter in ("A", "B", "C") if letter in many]
        return (
            f"{', '.join(counts) or 'none'} of {len(self.neurons)} neurons; a grade counts kinds of "
            "evidence (weights, push, effect) and is not a location"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Say what holds the answer back, and whose effect is that it is quieter here than for others."""
        remarks, neurons = [], self.neurons
        if len(self.against):
            against = [
                f"{row.name}@{row.position} at {row.token} ({row.effect:+.2f})"
                for row in self.against.itertuples()
            ]
            remarks.append(f"Held back by {', '.join(against)}.")
        if self.question.contrast is not None and "effect" in neurons:
            is_quiet = (neurons.set_to.abs() > neurons.activation.abs()) & (neurons.effect > 0)
            quiet = [
                f"{row.name}@{row.position} ({row.activation:.2f} here, {row.set_to:.2f} there)"
                for row in neurons[is_quiet].itertuples()
            ]
            more = f" and {len(quiet) - QUIET} more" if len(quiet) > QUIET else ""
            if quiet:
                remarks.append(f"Quieter here than for others: {', '.join(quiet[:QUIET])}{more}.")
        return tuple(remarks)

    @property
    def shown(self) -> "pd.DataFrame":
        """The neurons as they are read first: where, how good, how much, what each asks and says.

        `push` is the direct push and that through attention, added up. A gated neuron asks by its gate.
        """
        neurons = self.neurons
        frame = neurons[["name", "token", "grade"]].assign(
            name=neurons.name + "@" + neurons.position.astype(str),
            push=neurons.push + neurons.push_through_attention,
        )
        if "effect" in neurons:
            frame["effect"] = neurons.effect
        asks = neurons.gate_tokens if "gate_tokens" in neurons else neurons.question_tokens
        return frame.assign(asks=asks, says=neurons.answer_tokens)

    @property
    def title(self) -> str:
        """Say what is explained, in one line."""
        return name_question(self.provenance)

    @property
    def headline(self) -> str:
        """The title, and the verdict."""
        return f"{self.title}. {' '.join(self.verdict)}" if self.verdict else self.title

    @property
    def notes(self) -> tuple[str, ...]:
        """Say how the model ranks the answer, and what holds it back."""
        return (self.standing, *self.remarks)

    @property
    def caption(self) -> str:
        """How to read the grades, and what removed means."""
        return f"{self.how_to_read}; {GRADES}. {self.settings}"

    @property
    def how_to_read(self) -> str:
        """Say what the numbers of a row are."""
        lost = "; effect: lost without the neuron" if "effect" in self.neurons else ""
        return f"push: direct and through attention{lost}; in logits"

    @property
    def settings(self) -> str:
        """Say what removed means, and what was compared with."""
        return name_settings(self.provenance)

    @property
    def heading(self) -> str:
        """Ask what the page answers."""
        return f"Why {self.title}?"

    @property
    def table(self) -> "pd.DataFrame":
        """The neurons that matter most, graded."""
        return self.neurons

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables, in the order they are read."""
        every: dict[str, pd.DataFrame | None] = {"neurons": self.neurons}
        if self.curve is not None:
            every |= {"against": self.against, "curve": self.provenance.note(self.curve.table)}
        every |= {
            "predictions": self.predictions, "map": self.map, "parts": self.parts,
            "paths": self.paths, "pieces": self.pieces,
        }  # fmt: skip
        if self.curve is not None:
            every["sites"] = self.provenance.note(self.curve.sites)
        return {name: table for name, table in every.items() if table is not None}


def read_sites(table: "pd.DataFrame") -> list[Site]:
    """Return a table's neurons, each with its position."""
    return [
        (NeuronId(layer, neuron), position)
        for layer, neuron, position in zip(table.layer, table.neuron, table.position, strict=True)
    ]


def _table_shares(
    question: Counterfactual, listed: "pd.DataFrame", subject: Sequence[int]
) -> "pd.DataFrame":
    """Table who carries the answer's logit, attention's part given to its owners; rows add up to it."""
    import pandas as pd

    at_subject = listed.position.isin(list(subject))
    direct = through_subject = elsewhere = embedded = carried = biases = 0.0
    constants = dict[str, float]()
    for piece, owners in zip(question.pieces, question.owners, strict=True):
        through = owners.through.double().sum(dim=(0, 2))
        is_subject = torch.zeros(len(through), dtype=torch.bool)
        is_subject[list(subject)] = True
        direct += float(piece.values.double().sum())
        through_subject += float(through[is_subject].sum())
        elsewhere += float(through[~is_subject].sum())
        here = piece.account.embedding + piece.account.position
        embedded += here
        carried += float(owners.embeddings.double().sum()) - here
        biases += float(owners.biases.double().sum())
        for name, value in piece.account.constants.items():
            constants[name] = constants.get(name, 0.0) + value
    carried_listed = listed.push_through_attention
    rows = {
        f"the {len(listed)} neurons listed": float(listed.push.sum() + carried_listed.sum()),
        "other neurons, directly": direct - float(listed.push.sum()),
    }
    if len(subject):
        named = " ".join(question.trace.tokens[position] for position in subject)
        rest = through_subject - float(carried_listed[at_subject].sum())
        rows[f"other neurons at {named}, through attention"] = rest
    rest = elsewhere - float(carried_listed[~at_subject].sum())
    rows |= {
        "neurons at other tokens, through attention": rest,
        "embeddings, directly": embedded,
        "embeddings, through attention": carried,
        "biases": biases,
        **constants,
    }
    total = sum(piece.logit for piece in question.pieces)
    rows |= {"rounding": total - sum(rows.values()), "the answer's logit": total}
    return pd.DataFrame({"part": list(rows), "push": list(rows.values())})
