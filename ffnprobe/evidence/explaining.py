"""Explain an answer: which few neurons carry it, and weights, pushes and exact effects for each of them.

1. **Ask.** Run the prompt; the answer is the one given, or what the model says.
2. **Slopes.** One backward pass: how far the answer follows every neuron at every position.
3. **Compare.** The subject is a name or a word of the prompt (`facts.subjects`), the one whose neurons are
   estimated to help most; what it is compared with is the same sentence about others. From here on,
   removed means set to its mean over these (without any: to its mean over the model's corpus where that
   is known, else to zero).
4. **Rank** the sites, neurons at positions, by what they are estimated to cost the answer, less what they
   may cost others.
5. **Curve.** Remove the first n together, and read the verdict off it (`curve`).
6. **Remove** one at a time, exactly: the verdict's neurons, those of largest estimated cost, and those that seem to
   hold the answer back; and all neurons at once, for what they are worth here. The verdict's are listed
   first, in their order, then those of largest effect.
7. **Grade** each by its weights, its push and its effect (`curve`): each of these misleads alone.

Pushes and effects are in logits above the vocabulary's mean (convention `centred`), or above the rival's;
convention `folded` reads the model's own logit. An answer of several tokens is teacher-forced; pushes and
effects are added up over its pieces.
"""

from collections.abc import Sequence
from dataclasses import replace as replace_fields
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from ffnprobe.arguments import (
    CONTRAST,
    REPLACE,
    TOP,
    Answer,
    Bos,
    Convention,
    Option,
    Progress,
    Prompt,
    Seed,
    Versus,
    verb,
)
from ffnprobe.corpora.examples import join_examples
from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import OptionRefused
from ffnprobe.evidence.curve import (
    CONTROLS,
    SIZE,
    Bars,
    draw_alike,
    draw_curve,
    far,
    find_allowed,
    find_bar,
    list_largest,
    measure_costs,
    measure_spread,
    rank_sites,
)
from ffnprobe.evidence.explanation import ExplainOptions, Explanation
from ffnprobe.facts.subjects import locate_subject, propose_contrast, rank_subjects
from ffnprobe.interventions.question import Counterfactual, Replace, ask, measure_slopes
from ffnprobe.labels.stored_labels import find_labels, join_labels
from ffnprobe.models.model import Model
from ffnprobe.names import Site
from ffnprobe.provenance import Setting
from ffnprobe.reading.neuron_tables import Values, list_neurons
from ffnprobe.reading.projection import check_top, pick_read, sort_neurons
from ffnprobe.reading.spectrum import compare_rows
from ffnprobe.tracing.contrast import Contrast, Prompts
from ffnprobe.tracing.runs import run_before
from ffnprobe.tracing.trace import answer_ids, describe_sinks, predicted

if TYPE_CHECKING:
    import pandas as pd

NONE = "none"  # what `contrast` is called where nothing is to be compared
# Of the neurons that seem to hold the answer back so many are removed, and so many shown.
TRIED, SHOWN = 10, 3
POOL = 64  # by push, and by estimate: the control at a position is like these
PHASES = 7
TRIES = 3  # of what the prompt may be about, until others are found that are answered otherwise


@verb
@torch.no_grad()
def explain(
    model: Model,
    prompt: Prompt,
    answer: Answer = None,
    *,
    versus: Versus = None,
    contrast: Annotated[
        Contrast | Prompts | None,
        CONTRAST.but(
            "The same sentence about another subject, if others than those found; none: no comparison."
        ),
    ] = None,
    subject: Annotated[
        str | None,
        Option("What the sentence is about, if it is not found rightly.", metavar="WORDS"),
    ] = None,
    top: Annotated[int, TOP.but("How many neurons to list.")] = 10,
    replace: Annotated[Replace | None, REPLACE] = None,
    convention: Convention = "centred",
    scan: Scan | None = None,
    effects: Annotated[bool, Option("Measure ablation effects; faster without.")] = True,
    seed: Seed = 0,
    bos: Bos = None,
    progress: Progress | None = None,
) -> Explanation:
    """Find the few neurons that carry an answer, with graded evidence for each of them.

    The answer is by default the model's prediction. The prompt is compared with the same sentence about other
    subjects, which are found by themselves; `subject` says what the sentence is about, `contrast` gives the prompts (or rows of facts) to compare
    with. `contrast="none"` compares with nothing, and so does a `replace` of one's own. With a scan,
    neurons are shown with their examples. `effects=False` removes nothing: pushes and weights alone.

    >>> import ffnprobe as fp
    >>> found = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", versus=" football", top=3)
    >>> print(found.title)
    ␣basketball rather than ␣football after <|endoftext|> Michael ␣Jordan ␣plays ␣the ␣sport ␣of
    """
    check_top(top, model.config.neurons, of="neurons")
    is_alone = contrast in (NONE, [NONE]) or (contrast is None and replace is not None)
    if subject is not None and (is_alone or contrast is not None):
        raise OptionRefused(
            "a subject says what to compare; here that is given, or nothing is compared.",
            remedy="leave out subject, or contrast and replace",
        )
    if isinstance(contrast, list) and NONE in contrast and not is_alone:
        raise OptionRefused(
            f'contrast "{NONE}" compares with nothing, and other prompts are given too.',
            remedy=f"leave out {NONE}, or the others",
        )
    known_scan = None if scan is None else scan.check(model)
    step = progress or (lambda done, total: None)

    # 1. Ask.
    tokens = answer_ids(model, answer) if answer is not None and versus is None else ()
    trace = run_before(model, prompt, tokens[:-1], bos=bos)
    asked: str | int = predicted(trace) if answer is None else answer
    asks_means = replace is None or (isinstance(replace, str) and replace == "mean")
    given = known_scan.means if known_scan is not None and asks_means else replace
    question = ask(
        trace, asked, versus=versus, convention=convention,
        replace=given if is_alone or contrast is None else replace,
        contrast=None if is_alone else contrast,
    )  # fmt: skip
    step(1, PHASES)

    # 2. Slopes.
    slopes = measure_slopes(question.readout, of=("logit", "odds")) if effects else None
    step(2, PHASES)

    # 3. Compare.
    span = tuple(question.contrast.alignment.middle) if question.contrast else ()
    settings: dict[str, Setting] = {}
    if slopes is not None and contrast is None and not is_alone:
        helping = question.gaps * slopes.logit[:, : len(trace)]
        is_given, token = subject is not None, question.readout.tokens[0]
        spans = (
            rank_subjects(trace, helping) if subject is None else [locate_subject(trace, subject)]
        )
        for span in spans[:TRIES]:
            proposed = propose_contrast(trace, token, span, is_given=is_given)
            if proposed is not None:
                others, settings["compared_with"] = proposed
                question = question.set_to(others)
                break
        else:
            span = spans[0] if spans else ()
    settings = {**question.removal_settings(), **settings, **describe_sinks(trace)}
    step(3, PHASES)

    # 4. Rank.
    allowed = find_allowed(question)
    pushes = question.direct_pushes + question.attention_pushes
    pushes[:, ~allowed] = 0
    looked_at = int(allowed.sum()) * model.config.neurons
    ranked = list_largest(pushes, top) if slopes is None else rank_sites(question, slopes)
    step(4, PHASES)

    # 5. Curve.
    curve = None if slopes is None else draw_curve(question, ranked, seed=seed)
    step(5, PHASES)

    # 6. Remove.
    listed, against, removed, estimates, worth = ranked[:top], list[Site](), None, None, None
    if slopes is not None and curve is not None:
        estimates = question.gaps * slopes.logit[:, : len(trace)]
        carrying = ranked[: curve.least or 0]
        likely = list_largest(measure_costs(question, slopes, measure_spread(question)), 4 * top)
        inside = estimates.masked_fill(~allowed[:, None], 0.0)
        opposed = list_largest(inside, TRIED, smallest=True)
        removed = alone = question.remove_each([*carrying[:top], *likely, *opposed])
        rest = sorted(set(likely) - set(carrying), key=lambda site: (-alone[site], site))
        listed = [*carrying, *rest][:top]
        costly = sorted((effect, site) for site, effect in alone.items() if effect < 0)
        against = [site for _, site in costly if site not in listed][:SHOWN]
        worth = question.remove_all()
        settings |= _describe(removed, estimates)
    if not listed:
        last = question.position
        listed = [(name, last) for name in sort_neurons(pushes[:, last].abs(), top)]
        removed = None if slopes is None else question.remove_each([*listed, *against])
    step(6, PHASES)

    # 7. Grade.
    sites = [*listed, *against]
    table = _table_sites(question, sites, pushes, estimates, removed, worth, looked_at, seed)
    if known_scan is not None:
        table = join_examples(table, known_scan)
    table = join_labels(table, find_labels(model, known_scan))
    settings |= {"looked_at": looked_at, "seed": seed}
    step(7, PHASES)
    shown = " ".join(model.vocab.show_all(question.readout.tokens))
    provenance = replace_fields(question.pushes.provenance, answer=shown).including(**settings)
    given_prompts = None
    if contrast is not None and question.contrast is not None:
        given_prompts = tuple(other.prompt for other in question.contrast.others)
    return Explanation(
        question=question,
        neurons=provenance.note(table[: len(listed)].copy()),
        against=provenance.note(table[len(listed) :].reset_index(drop=True)),
        subject=tuple(position for position in span if allowed[position]),
        provenance=provenance,
        options=ExplainOptions(
            top, bos, given if is_alone else replace, convention, scan, effects, seed,
            NONE if contrast is not None and is_alone else given_prompts, subject,
        ),
        curve=curve,
        worth=worth,
    )  # fmt: skip


def _describe(removed: dict[Site, float], estimates: Tensor) -> dict[str, Setting]:
    """Say how many neurons were removed by themselves, and how well estimates agree with their effects."""
    import pandas as pd

    pairs = [
        (float(estimates[n.layer, at, n.neuron]), effect) for (n, at), effect in removed.items()
    ]
    table, settings = pd.DataFrame(pairs), dict[str, Setting](removed=len(pairs))
    if len(pairs) > 2 and bool((table.nunique() > 1).all()):
        settings["agreement"] = round(float(table.corr().to_numpy()[0, 1]), 2)
    return settings


def _table_sites(
    question: Counterfactual,
    sites: Sequence[Site],
    pushes: Tensor,
    estimates: Tensor | None,
    effects: dict[Site, float] | None,
    worth: float | None,
    looked_at: int,
    seed: int,
) -> "pd.DataFrame":
    """Table neurons, each at its position, with the evidence for them and its grade.

    What they must exceed is what others like the strongest neurons at their position do.
    """
    trace, rank, bars = question.trace, max(piece.rank for piece in question.pieces), {}
    for position in {position for _, position in sites}:
        alike = sort_neurons(pushes[:, position], POOL)
        if estimates is not None:
            alike = list(dict.fromkeys([*alike, *sort_neurons(estimates[:, position], POOL)]))
        sizes = trace.activations[:, position].abs()
        generator = torch.Generator().manual_seed(seed + position)
        control = draw_alike(sizes, alike, CONTROLS, generator=generator)
        at = [name.layer for name in control], position, [name.neuron for name in control]
        push, effect = (
            0.0 if values is None else find_bar(values[at], looked_at=looked_at)
            for values in (pushes, estimates)
        )
        bars[position] = Bars(far(looked_at), push, effect, SIZE * abs(worth or 0.0))
    z = _find_z(question, sites)
    grades = [
        bars[at].grade(
            own, float(pushes[n.layer, at, n.neuron]),
            float("nan") if effects is None else effects[n, at], rank=rank,
        )
        for (n, at), own in zip(sites, z, strict=True)
    ]  # fmt: skip
    columns: dict[str, Values] = {
        "grade": grades, "activation": trace.activations, "push": question.direct_pushes,
        "push_through_attention": question.attention_pushes, "z": z,
        "through": [head for head, _ in question.name_heads(sites)],
    }  # fmt: skip
    if trace.gate_scores is not None:
        columns |= {"gate_score": trace.gate_scores, "score": trace.scores}
    if effects is not None:
        columns["set_to"] = [question.change(site).value for site in sites]
        columns["effect"] = [effects[site] for site in sites]
    return list_neurons(trace.model, sites, columns, signs=trace.activations, tokens=trace.tokens)


def _find_z(question: Counterfactual, sites: Sequence[Site]) -> list[float]:
    """Return how far each neuron's answer, as it acted here, stands out for the token by its weights.

    With a rival, how far above the rival's; of several tokens, for the one that it stands out for most.
    """
    rival, activations = question.readout.versus, question.trace.activations
    ids = [*question.readout.tokens, *([] if rival is None else [rival])]
    model = question.trace.model
    rows = pick_read(model, [name for name, _ in sites], by="answer")
    every = compare_rows(model, ids, rows, by="answer")["z"].cpu()
    z = []
    for (name, position), own in zip(sites, every.mT, strict=True):
        value = own[0] - own[1] if rival is not None else own[own.abs().argmax()]
        acted = -1.0 if activations[name.layer, position, name.neuron] < 0 else 1.0
        z.append(acted * float(value))
    return z
