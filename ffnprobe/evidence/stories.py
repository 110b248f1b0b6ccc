"""Explain an answer: weights, direct pushes and exact effects of the neurons behind it, graded.

Three kinds of evidence are put side by side for each neuron, since each misleads alone: what its
weights promote, what it pushed on this prompt, and what the answer loses when it is removed. Pushes
and effects are in logits above the vocabulary's mean (convention `centred`), or above the rival's.

Neurons are looked for where the answer is predicted (the last position) and at the earlier position
where the MLPs matter most, usually the subject's last token: there a push is no direct one (it is
0), so a neuron can have two kinds of evidence at most.

Removed means set to its mean over the model's corpus where that is known, else to zero.

>>> import ffnprobe as fp
>>> story = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", " basketball")
>>> story.neurons.grade.iloc[0]
'A'
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.corpora.joins import join_examples
from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import OptionRefused
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.evidence.grades import draw_control
from ffnprobe.evidence.listing import find_peak, fit, list_earlier, list_last
from ffnprobe.evidence.sums import carry, remove_together
from ffnprobe.interventions.ablation import LayerEffects, ablate, ablate_layers
from ffnprobe.interventions.choices import Replace, usual_replacement
from ffnprobe.interventions.sweeps import Progress
from ffnprobe.models.means import Means
from ffnprobe.models.model import Model
from ffnprobe.reading.ordering import check_k
from ffnprobe.tracing.answers import one_token, predicted
from ffnprobe.tracing.pushes import Pushes, attribute
from ffnprobe.tracing.trace import Trace, run

if TYPE_CHECKING:
    import pandas as pd

PREDICTIONS = 5
Watch = Callable[[Explanation], None]  # the explanation as far as it is known


@torch.no_grad()
def explain(
    model: Model,
    prompt: str | Sequence[int],
    answer: str | int | None = None,
    *,
    versus: str | int | None = None,
    top: int = 10,
    bos: bool | None = None,
    replace: Replace | None = None,
    scan: Scan | None = None,
    effects: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Explanation:
    """Gather the evidence for an answer (one token; by default the model's own prediction).

    With a scan, neurons are set to their means over its corpus, and shown with their examples.
    `watch` is handed what is known so far, each time it is more: pushes, then the map, then effects
    layer by layer; until all are known, grades are of two tests.

    >>> import ffnprobe as fp
    >>> story = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", versus=" football", top=3)
    >>> print(story.title)
    ␣basketball rather than ␣football after <|endoftext|> Michael ␣Jordan ␣plays ␣the ␣sport ␣of
    """
    check_k(top, model.config.neurons, of="neurons")
    trace = run(model, prompt, bos=bos, patterns=False)
    token = predicted(trace) if answer is None else one_token(model, answer, use="explain")
    rival = None if versus is None else one_token(model, versus, use="--versus")
    pushes = attribute(trace, token, versus=rival)
    if not isinstance(pushes, Pushes):
        raise OptionRefused("explain needs an answer of one token.")
    if scan is not None and replace is None:
        replace = scan.check(model).means
    chosen = usual_replacement(model, replace)
    asked: dict[str, Any] = {"versus": rival, "replace": chosen, "convention": "centred"}
    control = draw_control(model, seed=seed)
    z = fit(model, token, rival)
    measured = f"removed means {_spell(chosen)}, control of {int(control.sum())} random neurons, seed {seed}"

    def assemble(
        tables: "list[pd.DataFrame]",
        layer_map: LayerEffects | None = None,
        together: "pd.DataFrame | None" = None,
        settings: str = measured,
    ) -> Explanation:
        import pandas as pd

        neurons = pd.concat(tables, ignore_index=True)
        return Explanation(
            trace=trace,
            pushes=pushes,
            predictions=trace.predictions(min(PREDICTIONS, model.config.vocab)),
            map=None if layer_map is None else layer_map.table(),
            neurons=neurons if scan is None else join_examples(neurons, scan.check(model)),
            parts=carry(pushes, tables[0]),
            together=together,
            provenance=trace.provenance_at(
                len(trace) - 1,
                convention="centred",
                answer=model.vocab.show(token),
                versus=None if rival is None else model.vocab.show(rival),
                settings=settings,
            ),
            options={
                "top": top,
                "bos": bos,
                "replace": replace,
                "scan": scan,
                "effects": effects,
                "seed": seed,
            },
        )

    if not effects or watch is not None:
        first = list_last(pushes, None, z, control, top)
        look = assemble([first], settings="no effects")
        if not effects:
            return look
    if watch is not None:
        watch(look)
    layer_map = ablate_layers(trace, token, log_probability=False, **asked)
    if watch is None:
        values = ablate(trace, token, log_probability=False, progress=progress, **asked).values
    else:
        watch(assemble([first], layer_map, settings="no effects of neurons"))

        def show(values: Float[Tensor, "layer neuron"], settings: str) -> None:
            assert watch is not None
            known = first.copy()
            picked = values[known.layer.tolist(), known.neuron.tolist()]
            known.insert(list(known.columns).index("push") + 1, "effect", picked.double().numpy())
            watch(assemble([known], layer_map, settings=settings))

        values = _sweep_layers(trace, token, asked, progress, show)
    tables = [list_last(pushes, values, z, control, top)]
    place = find_peak(layer_map, trace)
    if place is not None:
        tables.append(list_earlier(trace, token, place, z, control, max(1, top // 2), asked))
    together = remove_together(trace, token, tables, asked, seed=seed)
    return assemble(tables, layer_map, together)


def _sweep_layers(
    trace: Trace,
    token: int,
    asked: dict[str, Any],
    progress: Progress | None,
    show: Callable[[Float[Tensor, "layer neuron"], str], None],
) -> Float[Tensor, "layer neuron"]:
    """Find every neuron's effect a layer at a time, and show those known so far (others are NaN)."""
    c = trace.model.config
    values = torch.full((c.layers, c.d_mlp), torch.nan)
    for layer in range(c.layers):
        before = layer * c.d_mlp

        def count(done: int, _: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, c.neurons)

        found = ablate(
            trace, token, neurons=[f"L{layer}"], log_probability=False, progress=count, **asked
        )
        values[layer] = found.values[layer]
        show(values, f"effects of {layer + 1} of {c.layers} layers")
    return values


def _spell(replace: Replace) -> str:
    if isinstance(replace, Means):
        return f"set to the mean over {replace.corpus}"
    return f"set to {replace}" if isinstance(replace, str) else "set to given activations"
