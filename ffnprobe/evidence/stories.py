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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.corpora.joins import join_examples
from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import OptionRefused
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.evidence.grades import Bar, draw_control
from ffnprobe.evidence.sums import carry, remove_together
from ffnprobe.interventions.ablation import LayerEffects, ablate, ablate_layers
from ffnprobe.interventions.choices import Replace, usual_replacement
from ffnprobe.interventions.gradients import estimate
from ffnprobe.interventions.sweeps import Progress
from ffnprobe.models.means import Means, read_means
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import check_k, sort_neurons
from ffnprobe.reading.rankings import compare_tokens
from ffnprobe.tracing.answers import one_token, predicted
from ffnprobe.tracing.listing import list_neurons
from ffnprobe.tracing.pushes import Pushes, attribute
from ffnprobe.tracing.trace import Trace, run

if TYPE_CHECKING:
    import pandas as pd

CANDIDATES = 64
PREDICTIONS = 5


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
) -> Explanation:
    """Gather the evidence for an answer (one token; by default the model's own prediction).

    With a scan, neurons are set to their means over its corpus, and shown with their examples.

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
    z = _fit(model, token, rival)
    tables, layer_map, together = [], None, None
    if effects:
        layer_map = ablate_layers(trace, token, log_probability=False, **asked)
        found = ablate(trace, token, log_probability=False, progress=progress, **asked)
        tables.append(_last(pushes, found.values, z, control, top))
        place = _peak(layer_map, trace)
        if place is not None:
            tables.append(_earlier(trace, token, place, z, control, max(1, top // 2), asked))
        together = remove_together(trace, token, tables, asked, seed=seed)
    else:
        tables.append(_last(pushes, None, z, control, top))
    import pandas as pd

    neurons = pd.concat(tables, ignore_index=True)
    if scan is not None:
        neurons = join_examples(neurons, scan.check(model))
    return Explanation(
        trace=trace,
        pushes=pushes,
        predictions=trace.predictions(min(PREDICTIONS, model.config.vocab)),
        map=None if layer_map is None else layer_map.table(),
        neurons=neurons,
        parts=carry(pushes, tables[0]),
        together=together,
        provenance=trace.provenance_at(
            len(trace) - 1,
            convention="centred",
            answer=model.vocab.show(token),
            versus=None if rival is None else model.vocab.show(rival),
            settings=f"removed means {_spell(chosen)}, control of {int(control.sum())} random neurons, seed {seed}"
            if effects
            else "no effects",
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


def _spell(replace: Replace) -> str:
    if isinstance(replace, Means):
        return f"set to the mean over {replace.corpus}"
    return f"set to {replace}" if isinstance(replace, str) else "set to given activations"


def _fit(model: Model, token: int, rival: int | None) -> Float[Tensor, "layer neuron"]:
    """Return z of every neuron's answer for the token; with a rival, how far above the rival's z."""
    layers = list(range(model.config.layers))
    ids = [token] if rival is None else [token, rival]
    z = compare_tokens(model, ids, by="answer", layers=layers)["z"].cpu()
    return z[0] if rival is None else z[0] - z[1]


def _peak(layer_map: LayerEffects, trace: Trace) -> int | None:
    """Find the position before the last, BOS aside, where removing MLPs costs most; None if none."""
    first = 1 if trace.has_bos else 0
    earlier = layer_map.values[:, first : len(trace) - 1].clamp(min=0).sum(0)
    return None if not len(earlier) else first + int(earlier.argmax())


def _last(
    pushes: Pushes,
    effects: Float[Tensor, "layer neuron"] | None,
    z: Float[Tensor, "layer neuron"],
    control: Bool[Tensor, "layer neuron"],
    top: int,
) -> "pd.DataFrame":
    """Grade the neurons at the last position: those that pushed most and those that cost most."""
    many = min(CANDIDATES, pushes.values.numel())
    names = sort_neurons(pushes.values, many)
    if effects is not None:
        names += sort_neurons(effects, many)
    bar = Bar.over(control, pushes.values, effects)
    place = len(pushes.trace) - 1
    return _graded(pushes.trace, place, set(names), bar, pushes.values, effects, z, top)


def _earlier(
    trace: Trace,
    token: int,
    place: int,
    z: Float[Tensor, "layer neuron"],
    control: Bool[Tensor, "layer neuron"],
    top: int,
    asked: dict[str, Any],
) -> "pd.DataFrame":
    """Grade neurons at an earlier position: the gradient proposes, the exact effect decides."""
    hints = estimate(trace, token, **asked).over([place])
    proposed = sort_neurons(hints, min(CANDIDATES, hints.numel()))
    random = [NeuronId(*pair) for pair in control.nonzero().tolist()]
    effects = ablate(
        trace, token, position=place, neurons=[*proposed, *random], log_probability=False, **asked
    ).values
    none = torch.zeros_like(hints)
    bar = Bar.over(control, none, effects)
    return _graded(trace, place, set(proposed), bar, none, effects, z, top)


def _graded(
    trace: Trace,
    place: int,
    names: set[NeuronId],
    bar: Bar,
    pushes: Float[Tensor, "layer neuron"],
    effects: Float[Tensor, "layer neuron"] | None,
    z: Float[Tensor, "layer neuron"],
    top: int,
) -> "pd.DataFrame":
    """Table the best-graded neurons at a position, the costliest first within a grade."""
    activations = trace.activations[:, place]

    def at(values: Tensor, name: NeuronId) -> float:
        return float(values[name.layer, name.neuron])

    grades = {
        name: bar.grade(
            z=at(z, name), activation=at(activations, name), push=at(pushes, name),
            effect=None if effects is None else at(effects, name),
        )
        for name in names
    }  # fmt: skip
    weight = pushes if effects is None else effects
    ranked = sorted(names, key=lambda name: (grades[name] or "D", -at(weight, name), name))[:top]
    means = read_means(trace.model)
    columns = {}
    if trace.gate_scores is not None:
        columns = {"gate_score": trace.gate_scores[:, place], "score": trace.scores[:, place]}
    columns["activation"] = activations
    if means is not None:
        columns["mean_activation"] = means
    columns["push"] = pushes
    if effects is not None:
        columns["effect"] = effects
    columns["z"] = z
    frame = list_neurons(trace.model, ranked, columns, signs=activations)
    frame.insert(3, "position", place)
    frame.insert(4, "token", trace.tokens[place])
    frame.insert(5, "grade", [grades[name] for name in ranked])
    return frame
