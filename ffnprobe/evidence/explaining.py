"""Explain an answer: weights, pushes and exact effects of the neurons behind it, graded.

Three kinds of evidence are put side by side for each neuron, since each misleads alone: what its
weights promote, what it pushed on this prompt, and what the answer loses when it is removed. Pushes
and effects are in logits above the vocabulary's mean (convention `centred`), or above the rival's;
convention `folded` reads the model's own logit.

Neurons are looked for where the answer is predicted (the last position), and at the subject. With
contrast prompts (the same sentence about others) the subject is where the prompts differ; without, it
is where neurons matter most by their estimates, attention sinks set aside. At the last position a push is
direct. Before it, a push goes through attention: `through` is the head that carried most of it.

Removed means set to its mean over the contrast prompts; without them to its mean over the model's corpus
where that is known, else to zero. `specific` is what the contrast prompts' own answers lose on average
when the same neuron is removed there: evidence for this fact hurts here and not there.

Not every neuron is removed: the gradient proposes, the exact effect decides (`proposals`).

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

from ffnprobe.arguments import verb
from ffnprobe.corpora.joins import join_examples, join_labels
from ffnprobe.corpora.scans import Scan
from ffnprobe.corpora.stored_labels import find_labels
from ffnprobe.evidence.candidates import answer_z, list_first, list_graded
from ffnprobe.evidence.curve import Curve, draw_curve
from ffnprobe.evidence.explanation import ExplainOptions, Explanation
from ffnprobe.evidence.grades import CONTROLS
from ffnprobe.evidence.pieces import table_pieces
from ffnprobe.evidence.positions import (
    Looked,
    choose_columns,
    look_at_estimates,
    look_at_subject,
)
from ffnprobe.evidence.query import Query
from ffnprobe.evidence.removals import Coverage, measure_coverage, remove_candidates, remove_every
from ffnprobe.evidence.shares import table_paths, table_shares
from ffnprobe.evidence.subjects import find_subject, propose_contrast
from ffnprobe.evidence.together import measure_specific, read_sources, remove_together
from ffnprobe.interventions.ablation import LayerEffects
from ffnprobe.interventions.batches import Progress
from ffnprobe.interventions.choices import Replace
from ffnprobe.interventions.removal import Removal, choose_removal
from ffnprobe.models.model import Model
from ffnprobe.models.provenance import Setting
from ffnprobe.reading.ordering import check_top
from ffnprobe.tracing.answers import predicted
from ffnprobe.tracing.contrast import Contrast, Prompts
from ffnprobe.tracing.owners import find_owners
from ffnprobe.tracing.pushes import attribute
from ffnprobe.tracing.running import run
from ffnprobe.tracing.sinks import find_sinks

if TYPE_CHECKING:
    import pandas as pd

PREDICTIONS = 5


@verb
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
    exact: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Explanation:
    """Gather the evidence for an answer (by default the model's own prediction).

    The gradient proposes neurons, and the exact effect of removing them decides: few are removed, chosen
    so that those that `exact=True` would list are among them. `exact=True` removes every neuron at the
    last position, and layers at every position (`map`), which in a small model is done anyway; otherwise
    layers are removed where neurons are looked for. `coverage` says how many neurons were removed, and how
    well estimates and effects agree.

    With `contrast` (prompts about other subjects, or rows of facts) the evidence is for this subject,
    not for this kind of sentence. With a scan, neurons are set to their means over its corpus, and
    shown with their examples.

    >>> import ffnprobe as fp
    >>> found = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", versus=" football", top=3)
    >>> print(found.title)
    ␣basketball rather than ␣football after <|endoftext|> Michael ␣Jordan ␣plays ␣the ␣sport ␣of
    """
    (found,) = _explain(
        model, prompt, answer, versus=versus, contrast=contrast, top=top, bos=bos, replace=replace,
        scan=scan, convention=convention, effects=effects, exact=exact, seed=seed, progress=progress,
        only_last=True,
    )  # fmt: skip
    return found


@verb
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
    exact: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[Explanation]:
    """Yield what is known so far, each time it is more: pushes, the map, effects, all removed together.

    Until effects are known, grades count two tests. With `exact` effects come layer by layer. The last
    explanation is that of `explain`.

    >>> import ffnprobe as fp
    >>> steps = fp.explain_stepwise(fp.load("pocket"), "Michael Jordan plays the sport of", top=3)
    >>> [step.map is None for step in steps][:2]
    [True, False]
    """
    yield from _explain(
        model, prompt, answer, versus=versus, contrast=contrast, top=top, bos=bos, replace=replace,
        scan=scan, convention=convention, effects=effects, exact=exact, seed=seed, progress=progress,
        only_last=False,
    )  # fmt: skip


@torch.no_grad()
def _explain(
    model: Model,
    prompt: str | Sequence[int],
    answer: str | int | None,
    *,
    versus: str | int | None,
    contrast: Contrast | Prompts | None,
    top: int,
    bos: bool | None,
    replace: Replace | None,
    convention: str,
    scan: Scan | None,
    effects: bool,
    exact: bool,
    seed: int,
    progress: Progress | None,
    only_last: bool,
) -> Iterator[Explanation]:
    """Yield explanations as more is known; `only_last` makes no table that nobody asked to see."""
    check_top(top, model.config.neurons, of="neurons")
    trace = run(model, prompt, bos=bos)
    asked: str | int = predicted(trace) if answer is None else answer
    pushes = attribute(trace, asked, versus=versus, convention=convention)
    pieces = pushes.pieces
    known_scan = None if scan is None else scan.check(model)
    labels = find_labels(model, known_scan)
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
        exact,
    )  # fmt: skip
    shown = " ".join(model.vocab.show_all([piece.answer for piece in pieces]))
    known = replace_fields(pushes.provenance, answer=shown)
    if query.contrast is None:
        looked = Looked((), find_sinks(trace.activations))
    else:
        looked = look_at_subject(query.contrast)

    predictions = trace.predictions(min(PREDICTIONS, model.config.vocab))
    strongest = table_paths(query, sinks=looked.sinks)

    def assemble(
        tables: "Sequence[pd.DataFrame]",
        settings: dict[str, Setting],
        layer_map: LayerEffects | None = None,
        together: "pd.DataFrame | None" = None,
        coverage: Coverage | None = None,
    ) -> Explanation:
        import pandas as pd

        # Where neurons matter most comes first: the subject, if it is there that the fact is recalled.
        if all("effect" in table for table in tables):
            ordered = sorted(tables, key=lambda table: -table.effect.sum())
        else:
            ordered = list(tables)
        neurons = pd.concat(ordered, ignore_index=True)
        listed = neurons if known_scan is None else join_examples(neurons, known_scan)
        return Explanation(
            pushes=pushes,
            predictions=predictions.copy(),
            map=None if layer_map is None else layer_map.table,
            neurons=join_labels(listed, labels),
            parts=table_shares(query, tables, looked.earlier),
            paths=strongest.copy(),
            together=together,
            pieces=table_pieces(query, neurons),
            provenance=known.including(**settings),
            options=options,
            coverage=coverage,
            curve=curve,
        )

    curve: Curve | None = None
    if not (effects and only_last):
        first = list_first(query)
        yield assemble([first], {"effects": "not measured"})
    if not effects:
        return
    compared = _compare(query)
    curve = draw_curve(compared)
    if query.contrast is None:
        looked = look_at_estimates(query.estimates, trace)
    columns = choose_columns(looked, len(trace), model.config, exact=exact)
    layer_map = query.map_effects(columns)
    if not only_last:
        yield assemble([first], {"effects": "of layers only"}, layer_map)
    if exact:
        for removed in remove_every(query, looked.earlier, progress):
            if not (removed.pools or only_last):
                values = removed.effects[query.last]
                measured = int((~values.isnan().all(dim=-1)).sum())
                so_far = f"of {measured} of {len(values)} layers"
                yield assemble([_with_effects(first, values)], {"effects": so_far}, layer_map)
    else:
        removed = remove_candidates(query, looked.earlier, progress)
    neurons = model.config.neurons
    found = [(removed.only([query.last]), neurons)]
    if looked.earlier:
        found.append((removed.only(looked.earlier), len(looked.earlier) * neurons))
    tables = list_graded(query, found)
    coverage = measure_coverage(query, removed)
    settings: dict[str, Setting] = {**query.removal.settings(), **looked.settings(trace)}
    if compared.contrast is not None and query.contrast is None:
        settings["compared_with"] = [other.prompt for other in compared.contrast.others]
    settings |= {
        **coverage.settings(),
        "control": f"{CONTROLS} neurons alike in layer and activation",
        "seed": seed,
    }
    tables = [_with_specific(query, table) for table in tables]
    alone: dict[str, Setting] = {"effects": "of neurons by themselves"}
    if not only_last:
        yield assemble(tables, settings | alone, layer_map, coverage=coverage)
    together = remove_together(query, tables)
    yield assemble(tables, settings, layer_map, together, coverage)


def _compare(query: Query) -> Query:
    """Ask the same with contrast prompts: those given, or others proposed for the subject if there are any."""
    subject = None if query.contrast is not None else find_subject(query.trace, query.estimates)
    if subject is None:
        return query
    contrast = propose_contrast(query.trace, query.pieces[0].answer, subject)
    return query if contrast is None else replace_fields(query, removal=Removal(contrast))


def _with_effects(listed: "pd.DataFrame", values: torch.Tensor) -> "pd.DataFrame":
    """Put the effects known so far next to the pushes."""
    table = listed.copy()
    picked = values[table.layer.tolist(), table.neuron.tolist()]
    table.insert(list(table.columns).index("through") + 1, "effect", picked.double().numpy())
    return table


def _with_specific(query: Query, listed: "pd.DataFrame") -> "pd.DataFrame":
    """Put what the contrast prompts' own answers lose next to the effects."""
    values = measure_specific(query, read_sources(listed))
    if values is not None:
        listed.insert(list(listed.columns).index("effect") + 1, "specific", values)
    return listed
