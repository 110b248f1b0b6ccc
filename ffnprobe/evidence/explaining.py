"""Explain an answer: weights, direct pushes and exact effects of the neurons behind it, graded.

Three kinds of evidence are put side by side for each neuron, since each misleads alone: what its
weights promote, what it pushed on this prompt, and what the answer loses when it is removed. Pushes
and effects are in logits above the vocabulary's mean (convention `centred`), or above the rival's;
convention `folded` reads the model's own logit.

Neurons are looked for where the answer is predicted (the last position) and at the earlier position
where the MLPs matter most, usually the subject's last token. There a neuron has no direct push (it
is 0), so it can have two kinds of evidence at most.

Removed means set to its mean over the model's corpus where that is known, else to zero.

>>> import ffnprobe as fp
>>> found = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", " basketball")
>>> found.neurons.grade.iloc[0]
'A'
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from ffnprobe.corpora.joins import join_examples
from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import OptionRefused
from ffnprobe.evidence.candidates import answer_z, find_peak, list_earlier, list_last
from ffnprobe.evidence.explanation import ExplainOptions, Explanation
from ffnprobe.evidence.grades import draw_control
from ffnprobe.evidence.query import Query
from ffnprobe.evidence.shares import remove_together, table_shares
from ffnprobe.interventions.ablation import LayerEffects
from ffnprobe.interventions.choices import Replace, name_replacement, usual_replacement
from ffnprobe.interventions.sweeps import Progress
from ffnprobe.models.model import Model
from ffnprobe.models.provenance import Setting
from ffnprobe.reading.ordering import check_k
from ffnprobe.tracing.answers import one_token, predicted
from ffnprobe.tracing.pushes import Pushes, attribute
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
    top: int = 10,
    bos: bool | None = None,
    replace: Replace | None = None,
    convention: str = "centred",
    scan: Scan | None = None,
    effects: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Explanation:
    """Gather the evidence for an answer (one token; by default the model's own prediction).

    With a scan, neurons are set to their means over its corpus, and shown with their examples.

    >>> import ffnprobe as fp
    >>> found = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", versus=" football", top=3)
    >>> print(found.title)
    ␣basketball rather than ␣football after <|endoftext|> Michael ␣Jordan ␣plays ␣the ␣sport ␣of
    """
    steps = explain_stepwise(
        model, prompt, answer, versus=versus, top=top, bos=bos, replace=replace, scan=scan,
        convention=convention, effects=effects, seed=seed, progress=progress,
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
    trace = run(model, prompt, bos=bos, patterns=False)
    token = predicted(trace) if answer is None else one_token(model, answer, use="explain")
    rival = None if versus is None else one_token(model, versus, use="--versus")
    pushes = attribute(trace, token, versus=rival, convention=convention)
    if not isinstance(pushes, Pushes):
        raise OptionRefused("explain needs an answer of one token.", remedy="attribute")
    known_scan = None if scan is None else scan.check(model)
    asks_means = replace is None or (isinstance(replace, str) and replace == "mean")
    removal = known_scan.means if known_scan is not None and asks_means else replace
    query = Query(
        pushes=pushes,
        replace=usual_replacement(model, removal),
        z=answer_z(model, token, rival),
        control=draw_control(model, seed=seed),
        top=top,
        seed=seed,
    )
    options = ExplainOptions(top, bos, removal, convention, scan, effects, seed)

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
            parts=table_shares(pushes, tables[0]),
            together=together,
            provenance=pushes.provenance.including(**settings),
            options=options,
        )

    first = list_last(query, None)
    yield assemble([first], {"effects": "not measured"})
    if not effects:
        return
    layer_map = query.map_effects()
    yield assemble([first], {"effects": "of layers only"}, layer_map)
    for known in query.sweep(progress):
        values = known.values
        if values.isnan().any():
            measured = int((~values.isnan().all(dim=-1)).sum())
            so_far = f"of {measured} of {len(values)} layers"
            yield assemble([_with_effects(first, values)], {"effects": so_far}, layer_map)
    tables = [list_last(query, values)]
    if (peak := find_peak(layer_map, trace)) is not None:
        tables.append(list_earlier(query, peak))
    settings = name_replacement(query.replace)
    settings |= {"control": f"{int(query.control.sum())} random neurons", "seed": seed}
    yield assemble(tables, settings, layer_map, remove_together(query, tables))


def _with_effects(listed: "pd.DataFrame", values: torch.Tensor) -> "pd.DataFrame":
    """Put the effects known so far next to the pushes."""
    table = listed.copy()
    picked = values[table.layer.tolist(), table.neuron.tolist()]
    table.insert(list(table.columns).index("push") + 1, "effect", picked.double().numpy())
    return table
