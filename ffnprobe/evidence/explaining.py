"""Explain an answer: weights, pushes and exact effects of the neurons behind it, graded.

Three kinds of evidence are put side by side for each neuron, since each misleads alone: what its
weights promote, what it pushed on this prompt, and what the answer loses when it is removed. Pushes
and effects are in logits above the vocabulary's mean (convention `centred`), or above the rival's;
convention `folded` reads the model's own logit.

Neurons are looked for where the answer is predicted (the last position), and at the subject. With
contrast prompts (the same sentence about others) the subject is where the prompts differ; without, it
is where the MLPs matter most, resting places of attention set aside. At the last position a push is
direct. Before it, a push goes through attention: `through` is the head that carried most of it.

Removed means set to its mean over the contrast prompts; without them to its mean over the model's corpus
where that is known, else to zero. `specific` is what the contrast prompts' own answers lose on average
when the same neuron is removed there: evidence for this fact hurts here and not there.

An answer of several tokens is teacher-forced; pushes and effects are added up over its pieces.

>>> import ffnprobe as fp
>>> found = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", " basketball")
>>> found.rank, set(found.neurons.grade) <= {"A", "B", "C", ""}
(1, True)
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace as replace_fields
from typing import TYPE_CHECKING

import torch

from ffnprobe.corpora.joins import join_examples
from ffnprobe.corpora.scans import Scan
from ffnprobe.evidence.candidates import answer_z, list_earlier, list_last
from ffnprobe.evidence.explanation import ExplainOptions, Explanation
from ffnprobe.evidence.grades import CONTROLS
from ffnprobe.evidence.pieces import table_pieces
from ffnprobe.evidence.positions import Looked, find_resting, look_at_map, look_at_subject
from ffnprobe.evidence.query import Query
from ffnprobe.evidence.shares import table_paths, table_shares
from ffnprobe.evidence.together import list_places, measure_specific, remove_together
from ffnprobe.interventions.ablation import LayerEffects
from ffnprobe.interventions.choices import Replace
from ffnprobe.interventions.removal import choose_removal
from ffnprobe.interventions.sweeps import Progress
from ffnprobe.models.model import Model
from ffnprobe.models.provenance import Setting
from ffnprobe.reading.ordering import check_k
from ffnprobe.tracing.answers import predicted
from ffnprobe.tracing.contrast import Contrast, Prompts
from ffnprobe.tracing.owners import find_owners
from ffnprobe.tracing.pushes import attribute
from ffnprobe.tracing.running import run

if TYPE_CHECKING:
    import pandas as pd

PREDICTIONS = 5


def explain(
    model: Model,
    prompt: str | Sequence[int],
    answer: str | int | None = None,
    *,
    versus: str | int | None = None,
    contrast: Contrast | Prompts | None = None,
    top: int = 10,
    bos: bool | None = None,
    replace: Replace | None = None,
    convention: str = "centred",
    scan: Scan | None = None,
    effects: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Explanation:
    """Gather the evidence for an answer (by default the model's own prediction).

    With `contrast` (prompts about other subjects, or rows of facts) the evidence is for this subject,
    not for this kind of sentence. With a scan, neurons are set to their means over its corpus, and
    shown with their examples.

    >>> import ffnprobe as fp
    >>> found = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", versus=" football", top=3)
    >>> print(found.title)
    ␣basketball rather than ␣football after <|endoftext|> Michael ␣Jordan ␣plays ␣the ␣sport ␣of
    """
    steps = explain_stepwise(
        model, prompt, answer, versus=versus, contrast=contrast, top=top, bos=bos, replace=replace,
        scan=scan, convention=convention, effects=effects, seed=seed, progress=progress,
    )  # fmt: skip
    for step in steps:
        found = step
    return found


@torch.no_grad()
def explain_stepwise(
    model: Model,
    prompt: str | Sequence[int],
    answer: str | int | None = None,
    *,
    versus: str | int | None = None,
    contrast: Contrast | Prompts | None = None,
    top: int = 10,
    bos: bool | None = None,
    replace: Replace | None = None,
    convention: str = "centred",
    scan: Scan | None = None,
    effects: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[Explanation]:
    """Yield what is known so far, each time it is more: pushes, the map, effects layer by layer.

    Until all effects are known, grades count two tests. The last explanation is that of `explain`.

    >>> import ffnprobe as fp
    >>> steps = fp.explain_stepwise(fp.load("pocket"), "Michael Jordan plays the sport of", top=3)
    >>> [step.map is None for step in steps][:2]
    [True, False]
    """
    check_k(top, model.config.neurons, of="neurons")
    trace = run(model, prompt, bos=bos)
    asked: str | int = predicted(trace) if answer is None else answer
    pushes = attribute(trace, asked, versus=versus, convention=convention)
    pieces = pushes.pieces
    known_scan = None if scan is None else scan.check(model)
    asks_means = replace is None or (isinstance(replace, str) and replace == "mean")
    given = known_scan.means if known_scan is not None and asks_means else replace
    if contrast is not None and known_scan is not None and replace is None:
        given = None  # the scan's examples are shown; what replaces a neuron is the contrast mean
    query = Query(
        trace=trace,
        answer=asked,
        pieces=pieces,
        owners=tuple(find_owners(piece) for piece in pieces),
        removal=choose_removal(trace, asked, replace=given, contrast=contrast),
        z=answer_z(model, [piece.answer for piece in pieces], pieces[0].versus),
        top=top,
        seed=seed,
    )
    options = ExplainOptions(
        top, bos, given, convention, scan, effects, seed,
        None if query.contrast is None else tuple(one.prompt for one in query.contrast.others),
    )  # fmt: skip
    shown = " ".join(model.vocab.show_all([piece.answer for piece in pieces]))
    known = replace_fields(pushes.provenance, answer=shown)
    if query.contrast is None:
        looked = Looked((), find_resting(trace.activations))
    else:
        looked = look_at_subject(query.contrast)

    def assemble(
        tables: "Sequence[pd.DataFrame]",
        settings: dict[str, Setting],
        layer_map: LayerEffects | None = None,
        together: "pd.DataFrame | None" = None,
    ) -> Explanation:
        import pandas as pd

        neurons = pd.concat(tables, ignore_index=True)
        return Explanation(
            pushes=pushes,
            predictions=trace.predictions(min(PREDICTIONS, model.config.vocab)),
            map=None if layer_map is None else layer_map.table,
            neurons=neurons if known_scan is None else join_examples(neurons, known_scan),
            parts=table_shares(query, tables, looked.earlier),
            paths=table_paths(query, resting=looked.resting),
            together=together,
            pieces=table_pieces(query, neurons),
            provenance=known.including(**settings),
            options=options,
        )

    first = list_last(query, None)
    yield assemble([first], {"effects": "not measured"})
    if not effects:
        return
    layer_map = query.map_effects()
    if query.contrast is None:
        looked = look_at_map(layer_map, trace)
    yield assemble([first], {"effects": "of layers only"}, layer_map)
    for swept in query.sweep(progress):
        values = swept.values
        if values.isnan().any():
            measured = int((~values.isnan().all(dim=-1)).sum())
            so_far = f"of {measured} of {len(values)} layers"
            yield assemble([_with_effects(first, values)], {"effects": so_far}, layer_map)
    tables = [list_last(query, values)]
    if looked.earlier:
        tables.append(list_earlier(query, looked.earlier))
    tables = [_with_specific(query, table) for table in tables]
    settings = query.removal.settings() | looked.settings(trace)
    settings |= {"control": f"{CONTROLS} neurons alike in layer and activation", "seed": seed}
    yield assemble(tables, settings, layer_map, remove_together(query, tables))


def _with_effects(listed: "pd.DataFrame", values: torch.Tensor) -> "pd.DataFrame":
    """Put the effects known so far next to the pushes."""
    table = listed.copy()
    picked = values[table.layer.tolist(), table.neuron.tolist()]
    table.insert(list(table.columns).index("through") + 1, "effect", picked.double().numpy())
    return table


def _with_specific(query: Query, listed: "pd.DataFrame") -> "pd.DataFrame":
    """Put what the contrast prompts' own answers lose next to the effects."""
    values = measure_specific(query, list_places(listed))
    if values is not None:
        listed.insert(list(listed.columns).index("effect") + 1, "specific", values)
    return listed
