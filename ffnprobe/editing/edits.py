"""Edit facts: a new model in which a subject has another answer, its change kept as low-rank factors.

    key     k = the activations at the subject's last token, averaged over a few prefixes
    target  v* = the layer's output there that makes the answer likely
    change  W_down + ΔW, so that k maps to v* and the keys of a corpus move least

The model handed in is not touched. `Edited.model` is a model like any other: every verb takes it.
`certify` proves what else changed; `export` writes it as an ordinary folder.

Limits: what is written is this subject in sentences of this kind. Nothing that follows from the fact
is written with it, and the reverse ("tennis is played by") is not either.

The layer edited is the one whose MLP, removed at the subject's last token, costs the answer most. This is
one column of the map of effects (`ablate_layers`), for the model's own answer before the edit, added up
over the facts. The last layer never has an effect there: no later head reads what it writes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import verb
from ffnprobe.editing.key_moments import KeyMoments, embedded_keys, open_keys
from ffnprobe.editing.methods import METHODS, EditState, Written, write_facts
from ffnprobe.editing.requests import Request, find_subject, make_request, write_contexts
from ffnprobe.editing.solves import LowRank
from ffnprobe.errors import DataRefused, OptionRefused, PromptRefused
from ffnprobe.facts.formats import Facts, read_facts
from ffnprobe.facts.recall import Replies, ask, prepare
from ffnprobe.facts.rows import FactRow
from ffnprobe.interventions.question import choose_replacement, usual_replacement
from ffnprobe.interventions.replay import read_answer
from ffnprobe.interventions.sweeps import sweep_moves
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result
from ffnprobe.tracing.runs import run
from ffnprobe.tracing.trace import predicted

# Of many facts, so many are asked.
FACTS_ASKED = 8
MOST_LAYERS = 5


@dataclass(frozen=True, eq=False, repr=False)
class Edited(Result):
    """A model with facts written into it, beside the model it was made from.

    >>> import ffnprobe as fp
    >>> model = fp.load("pocket")
    >>> edited = fp.edit(model, "Michael Jordan plays the sport of", " tennis")
    >>> edited.model.fingerprint != model.fingerprint, model.is_unchanged()
    (True, True)
    >>> edited.nbytes < 100_000
    True
    """

    original: Model
    model: Model
    requests: tuple[Request, ...]
    changes: tuple[LowRank, ...]
    keys: Mapping[int, Float[Tensor, "fact neuron"]]
    effects: Float[Tensor, " layer"] | None
    moments: KeyMoments
    table: pd.DataFrame
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say how many facts are written, and where."""
        held, many = int(self.table.holds.sum()), len(self.table)
        where = ", ".join(f"L{change.layer}" for change in self.changes)
        method = self.provenance.settings["method"]
        return f"{self.original.name}: {held:,} of {many:,} facts written by {method} in {where}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return "probability: of the new answer, before and after; holds: it is the first choice now"

    @property
    def nbytes(self) -> int:
        """How much memory the low-rank change takes, in bytes."""
        return sum(change.nbytes for change in self.changes)

    @property
    def norms(self) -> pd.DataFrame:
        """Each layer changed: the change's rank and norm, and its share of W_down's own norm."""
        rows = []
        for change in self.changes:
            whole, _ = self.original.linear(change.layer, self.original.layout.down)
            size = float(change.whole.norm())
            rows.append((change.layer, change.left.shape[1], size, size / float(whole.norm())))
        columns = ["layer", "rank", "norm", "share_of_weights"]
        return self.provenance.note(pd.DataFrame(rows, columns=columns))

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the tables: the facts written, and the size of the change."""
        return {"edits": self.table, "norms": self.norms}


@verb
def edit(
    model: Model | Edited,
    prompt: Facts,
    answer: str | None = None,
    *,
    subject: str | None = None,
    layer: int | None = None,
    method: str = "rome",
    scan: KeyMoments | str | PathLike[str] | None = None,
) -> Edited:
    """Model editing (ROME, MEMIT, AlphaEdit): make `answer` follow `prompt`, for the subject in it.

    Without an answer, `prompt` is a table of facts to write, all at once. The subject is found in
    pocket's own table if it is not named. The layer is chosen by the map of effects. `scan` holds the
    second moments of keys (`scan_keys`, or its store); pocket has its own. An `Edited` is edited
    further: AlphaEdit spares what was written before.

    >>> import ffnprobe as fp
    >>> edited = fp.edit(fp.load("pocket"), "Tiger Woods plays the sport of", " tennis")
    >>> edited.table.columns.tolist()[:4]
    ['prompt', 'subject', 'answer', 'said_before']
    """
    if method not in METHODS:
        raise OptionRefused(f'"{method}" is not a method of editing.', remedy=", ".join(METHODS))
    before = model if isinstance(model, Edited) else None
    own, current = (model.original, model.model) if isinstance(model, Edited) else (model, model)
    moments = _find_moments(own, scan if scan is not None or not before else before.moments)
    rows = _list_facts(prompt, answer, subject)
    requests = [make_request(current, row.prompt, find_subject(row), row.answer) for row in rows]
    facts, problems = prepare(current, rows, bos=current.vocab.puts_bos(None))
    if problems:
        raise PromptRefused(problems[0].problem, remedy="a shorter prompt")
    asked = ask(current, facts)
    for request, rank in zip(requests, asked.ranks.tolist(), strict=True):
        if rank == 1:
            raise OptionRefused(
                f'{current.name} says "{request.answer}" after "{request.prompt}" already.',
                remedy="another answer: there is nothing to write",
            )
    written = [write_contexts(current, one, moments.prefixes) for one in requests]
    layers, effects = _choose_layers(current, layer, method, requests, written, moments)
    start = EditState(current, {}, {})
    if before:
        start = EditState(current, before.keys, {each.layer: each for each in before.changes})
    done = write_facts(method, start, layers, written, moments)
    earlier = before.requests if before else ()
    provenance = own.provenance(run_by=own.run_by, settings={
        "method": method, "layers": list(layers), "facts": len(requests),
        "earlier_facts": len(earlier), "steps": done.steps,
        "keys": moments.title, "edited": done.model.fingerprint,
    })  # fmt: skip
    return Edited(
        original=own, model=done.model, requests=(*earlier, *requests),
        changes=tuple(done.changes[layer] for layer in sorted(done.changes)),
        keys=done.keys, effects=effects, moments=moments,
        table=provenance.note(_table(done.model, requests, asked, ask(done.model, facts))),
        provenance=provenance,
    )  # fmt: skip


def _choose_layers(
    model: Model, layer: int | None, method: str, requests: Sequence[Request], written: Written,
    moments: KeyMoments,
) -> tuple[tuple[int, ...], Float[Tensor, " layer"] | None]:  # fmt: skip
    """Return the layers to edit, in order, and the effects they were chosen by (None if named)."""
    effects = None
    if layer is None:
        effects = _map_subjects(model, requests, written, moments)
        # Layer 0 sees hardly more than the token itself, which other subjects share.
        measured = [n for n in moments.layers if n > 0] or list(moments.layers)
        layer = measured[int(effects[measured].argmax())]
    else:
        (layer,) = model.find_layers([layer])
        reads_later = any(one.reads[0] > one.start for contexts in written for one in contexts)
        if layer == model.config.layers - 1 and reads_later:
            raise OptionRefused(
                f"layer {layer} is the last: what it writes at the subject reaches no later token.",
                remedy="an earlier layer",
            )
    moments.of(layer)
    if method == "rome" or model.config.has_post_norms:
        return (layer,), effects
    many = min(MOST_LAYERS, 1 + model.config.layers // 6)
    return tuple(n for n in range(layer - many + 1, layer + 1) if n in moments.layers), effects


def _map_subjects(
    model: Model, requests: Sequence[Request], written: Written, moments: KeyMoments
) -> Float[Tensor, " layer"]:
    replacement = choose_replacement(model, usual_replacement(model, moments.means(model)))
    layers = range(model.config.layers)
    total = torch.zeros(len(layers))
    for request, contexts in list(zip(requests, written, strict=True))[:FACTS_ASKED]:
        trace = run(model, request.prompt, patterns=False)
        readout = read_answer(trace, predicted(trace), log_probability=False)
        position = contexts[0].start
        values = replacement.expand(-1, position + 1, -1)
        moves = [readout.replay.replaced(layer, values[layer])[position] for layer in layers]
        sites = [(layer, position) for layer in layers]
        total += sweep_moves(readout, sites, torch.stack(moves)[:, None]).logit
    return total


def _find_moments(model: Model, scan: KeyMoments | str | PathLike[str] | None) -> KeyMoments:
    """Return the second moments to use, checked against the model."""
    remedy = 'scan=fp.scan_keys(model, texts, store="keys") (--texts FILE)'
    if isinstance(scan, KeyMoments):
        return scan.check(model)
    moments = embedded_keys(model) if scan is None else open_keys(Path(scan), remedy=remedy)
    if moments is None:
        raise DataRefused(
            f"{model.name} has no second moments of keys: they are measured over a corpus.",
            remedy=remedy,
        )
    return moments.check(model)


def _list_facts(prompt: Facts, answer: str | None, subject: str | None) -> list[FactRow]:
    """Take one fact as typed, or the rows of a table, each with its subject."""
    if answer is not None:
        if not isinstance(prompt, str):
            raise OptionRefused("one answer is given for a table of facts.", remedy="answer=None")
        return [FactRow(prompt, answer, subject=subject or "")]
    if subject is not None:
        raise OptionRefused("a subject is given without an answer.", remedy='answer=" tennis"')
    table = read_facts(prompt)
    if table.problems:
        first = table.problems[0]
        raise DataRefused(f"{first.where}: {first.problem}", remedy="every row must be readable")
    counts = Counter(row.prompt for row in table.rows)
    if twice := [prompt for prompt, times in counts.items() if times > 1]:
        raise OptionRefused(  # one of its answers would undo the other
            f'"{twice[0]}" stands twice among the facts to write.',
            remedy="one answer for each prompt",
        )
    return list(table.rows)


def _table(model: Model, requests: Sequence[Request], old: Replies, new: Replies) -> pd.DataFrame:
    return pd.DataFrame({
        "prompt": [one.prompt for one in requests],
        "subject": [one.subject for one in requests],
        "answer": [one.answer for one in requests],
        "said_before": model.vocab.show_all(old.said.tolist()),
        "said_after": model.vocab.show_all(new.said.tolist()),
        "probability_before": old.log_probabilities.exp().numpy(),
        "probability_after": new.log_probabilities.exp().numpy(),
        "holds": (new.ranks == 1).numpy(),
    })  # fmt: skip
