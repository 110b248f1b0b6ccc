"""Label neurons: what opens each, what it says, and how far both can be trusted.

A label is a claim that can fail. *Opens*: the best rule of a fixed set of kinds (`labels.rules`), found on
half of a scan's texts and scored on the other half: precision, recall and F1 at "among the strongest 1 %
of activations", and the correlation with the activation. *Says*: the tokens its answer promotes, and how
many of ten gain when the neuron is set to its high activation, next to what another neuron does to
them. No language model takes part.

Limits: a rule speaks of the current token, up to two before it, classes and positions; only high
activations are looked at; the output test has two positions a neuron. A label is written by fixed rules, in
at most eight words: what opens the neuron → what it says.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from ffnprobe.arguments import NAMES, Option, Progress, verb
from ffnprobe.corpora.passages import ScanSettings
from ffnprobe.corpora.scans import Scan
from ffnprobe.corpora.statistics import first_of
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.labels.counts import read_scores
from ffnprobe.labels.measuring import Labelling
from ffnprobe.labels.rules import CLASSES, KINDS, Keys
from ffnprobe.labels.splits import BEFORE, SPACE, Columns, split_texts
from ffnprobe.labels.stored_labels import (
    DEAD,
    UNEXPLAINED,
    Labels,
    Partial,
    open_labels,
    write_labels,
)
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.store import hold_store

# Words of each part, so that a label has at most eight, the arrow among them.
_TOKENS, _SAYS = 3, 2
# So many of ten promoted tokens must gain, and more than under another neuron, to be in a label.
LEAST_GAIN = 7.0
_FEWEST = 4  # texts or passages: two for each split, one for each part of the train texts
_TEXTS = ("name", "label", "opens", "says", "rule_kind", "rule")
_COUNTS = ("layer", "neuron", "strong", "fires")
_COLUMNS = (
    "name", "layer", "neuron", "label", "opens", "says", "rule_kind", "rule",
    "precision", "recall", "f1", "correlation", "lookup_f1", "lookup_correlation", "shuffled_f1",
    "output_gain", "output_gain_random", "found_f1", "threshold", "high", "strong", "fires",
)  # fmt: skip


@verb
@torch.no_grad()
def label(
    model: Model,
    scan: Scan | str | os.PathLike[str],
    *,
    neurons: Annotated[
        str | Sequence[str] | None,
        NAMES.but(
            "A neuron L3N12, a layer L3, a range L3N5-L3N9; all by default.", typed=list[str] | None
        ),
    ] = None,
    share: Annotated[
        float, Option("The share of a neuron's activations that count as strong.")
    ] = 0.01,
    least: Annotated[
        float, Option("A neuron whose F1 is below this is unexplained.", least=0, most=1)
    ] = 0.3,
    progress: Progress | None = None,
) -> Labels:
    """Label neurons by rules found on half of a scan's texts and scored on the other half.

    Every neuron is labelled, or those named. With the folder of a store, labels of all neurons are kept in
    it, an interrupted run is resumed, and a finished one is read. `share` is how much of a neuron's
    activations count as strong, `least` the F1 below which a neuron is *unexplained*. `progress` is called
    with the tokens done, and of how many.

    >>> import ffnprobe as fp
    >>> model = fp.load("pocket")
    >>> texts = {str(n): f"Tiger Woods plays golf and won {n} times" for n in range(24)}
    >>> found = fp.label(model, fp.scan(model, texts), neurons=["L0N3", "L1N5"])
    >>> found.table.name.tolist()
    ['L0N3', 'L1N5']
    """
    if not 0 < share <= 0.5:
        raise OptionRefused(f"share = {share}: it must be above 0 and at most 0.5.", remedy="0.01")
    if neurons is not None and not len(neurons):
        raise OptionRefused("no neuron is named.", remedy='"L3N12", or leave out neurons for all')
    folder = None if isinstance(scan, Scan) else Path(scan)
    opened = (scan if isinstance(scan, Scan) else Scan.open(scan)).check(model)
    if not opened.is_finished:
        raise DataRefused(
            "the scan is not finished: labels need all of it.",
            remedy="the same scan again: it resumes",
        )
    if len(opened.kept) < _FEWEST:
        raise DataRefused(
            f"{len(opened.kept)} passages are too few to find rules on one half and score them on the other.",
            remedy="more texts, or a shorter context",
        )
    c = model.config
    names = model.find_neurons([f"L{n}" for n in range(c.layers)] if neurons is None else neurons)
    if folder is not None and (stored := open_labels(opened)) is not None:
        settings = stored.provenance.settings
        if (settings["share"], settings["least"]) == (share, least):
            return stored if neurons is None else stored.pick([str(name) for name in names])
    is_kept = folder is not None and neurons is None
    with hold_store(folder, opened.manifest) if folder and is_kept else nullcontext() as store:
        asked = ScanSettings(**opened.manifest["settings"])
        train, held_out, by = split_texts(opened, asked)
        columns = Columns.choose(names, layers=c.layers, neurons=c.d_mlp)
        task = {"digest": opened.done.digest, "identity": model.identity, "share": share}
        labelling = Labelling(
            model, asked, train, held_out, columns, share, Partial(store, task), progress
        )
        provenance = opened.provenance.including(
            share=share, least=least, halves_by=by, found_on=len(train), scored_on=len(held_out)
        )
        table = _tabulate(labelling, opened.statistics.above, least)
        labels = Labels(table, provenance, opened).pick([str(name) for name in names])
        if store is not None:
            write_labels(store, labels, opened)
    return labels


def _tabulate(labelling: Labelling, above: Tensor, least: float) -> dict[str, Any]:
    """Measure, and write one row for every neuron, from what was counted of its column and its control."""
    columns, shown = labelling.columns, labelling.model.vocab.shown
    keys, every_rule, measured = labelling.measure()
    table: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for layer in columns.layers:
        neurons, rules = columns.neurons[layer].numpy(), every_rule[layer]
        many = len(neurons)
        scores = read_scores(measured[f"counted.{layer}"])
        gains = measured[f"gains.{layer}"].numpy()
        shuffled = np.full(many, np.nan)
        shuffled[columns.controls(layer).numpy()] = scores["f1"][many:]
        own = {name: each[:many] for name, each in scores.items()}
        own |= {
            "shuffled_f1": shuffled,
            "output_gain": gains[0] / gains[2].clip(min=1),
            "output_gain_random": gains[1] / gains[2].clip(min=1),
            "found_f1": rules.f1[:many],
            "threshold": measured[f"thresholds.{layer}"].numpy()[:many],
            "high": measured[f"highs.{layer}"].numpy()[:many],
            "layer": np.full(many, layer),
            "neuron": neurons,
        }
        for name, each in own.items():
            table[name].append(each)
        for row, promoted in enumerate(measured[f"promoted.{layer}"].tolist()):
            neuron = NeuronId(layer, int(neurons[row]))
            says = fold_words(shown[token] for token in promoted)
            opens, rule, rule_kind = "", "", ""
            kind, chosen = rules.of(row)
            if kind >= 0 and len(chosen):
                parts = (keys[kind], chosen.tolist(), shown, labelling.settings.length)
                opens, rule = describe_rule(*parts), list_keys(*parts)
                rule_kind = "class" if KINDS[kind] in CLASSES else KINDS[kind]
            gain, other = own["output_gain"][row], own["output_gain_random"][row]
            if int(above[layer, neuron.neuron]) == 0:
                text = DEAD
            elif not opens or own["f1"][row] < least:
                text = UNEXPLAINED
            else:
                text = write_label(opens, says if gain >= LEAST_GAIN and gain > other else [])
            texts = (str(neuron), text, opens, " ".join(says), rule_kind, rule)
            for name, value in zip(_TEXTS, texts, strict=True):
                table[name].append(" ".join(value.split()))
    return {
        name: values
        if name in _TEXTS
        else np.concatenate(values).astype(np.int32 if name in _COUNTS else np.float32)
        for name, values in table.items()
    }


def fold_words(tokens: Iterable[str]) -> list[str]:
    """Fold shown tokens into word families, each named by its first member.

    Forms of one word are one family: case, the space in front and an ending -s aside.

    >>> fold_words(["␣basketball", "Basketball", "␣basketballs", "␣golf"])
    ['basketball', 'golf']
    """
    families: dict[str, str] = {}
    for token in tokens:
        bare = token.strip(SPACE) or token
        folded = bare.casefold()
        root = folded[:-1] if len(folded) > 3 and folded.endswith("s") else folded
        families.setdefault(root, bare)
    return list(families.values())


def describe_rule(keys: Keys, chosen: Sequence[int], shown: Sequence[str], length: int) -> str:
    """Write what opens a neuron, in at most five words, of the keys of one kind chosen for it."""
    kind = keys.kind
    if kind in CLASSES:
        return kind
    if kind == "position":
        return _name_positions(chosen, first_of(length))
    if kind in ("pair", "triple"):
        phrases = [_join(keys.tokens(key), shown) for key in chosen]
        short = next((phrase for phrase in phrases if len(phrase.split()) <= 3), phrases[0])
        return f"after {_quote([short], len(phrases) > 1)}"
    words = fold_words(_show(keys.tokens(key)[-1], shown) for key in chosen)
    if kind == "previous":
        return f"next after {_quote(words[:2], len(words) > 2)}"
    if kind == "after":
        before = BEFORE[int(keys.groups[chosen[0]])]
        where = "at start" if before == "nothing" else f"after {before}"
        return f"{_quote(words[:2], len(words) > 2)} {where}"
    return _quote(words[:_TOKENS], len(words) > _TOKENS)


def list_keys(keys: Keys, chosen: Sequence[int], shown: Sequence[str], length: int) -> str:
    """Write a rule whole: every key, tokens in their shown form, a space between keys."""
    if keys.kind in CLASSES or keys.kind == "position":
        return describe_rule(keys, chosen, shown, length)
    listed = " ".join(_join(keys.tokens(key), shown).replace(" ", SPACE) for key in chosen)
    if keys.kind == "after":
        return f"after {BEFORE[int(keys.groups[chosen[0]])]}: {listed}"
    return listed


def write_label(opens: str, says: Sequence[str]) -> str:
    """Join both parts; without anything said that was tested, the first alone."""
    words = [" ".join(word.split()) for word in says]
    short = [word for word in words if len(word.split()) == 1][:_SAYS]
    return f"{opens} → {', '.join(short)}" if short else opens


def _name_positions(ranges: Sequence[int], firsts: Sequence[int]) -> str:
    start = firsts[ranges[0]]
    after = firsts[ranges[-1] + 1] if ranges[-1] + 1 < len(firsts) else None
    if after is not None and after - start == 1:
        return f"position {start}"
    if start == 0:
        return "any position" if after is None else f"first {after} tokens"
    return f"positions from {start}" if after is None else f"positions {start}–{after - 1}"


def _show(token: int, shown: Sequence[str]) -> str:
    return "⟨start⟩" if token < 0 else shown[token]


def _join(tokens: Sequence[int], shown: Sequence[str]) -> str:
    """Write consecutive tokens as a reader sees them; a vocabulary of words has no spaces to show."""
    # Of several positions before the beginning one is enough.
    pairs = zip(tokens, (*tokens[1:], 0), strict=True)
    pieces = [_show(token, shown) for token, after in pairs if token >= 0 or after >= 0]
    between = "" if any(SPACE in piece for piece in pieces) else " "
    return between.join(pieces).replace(SPACE, " ").strip() or "".join(pieces)


def _quote(words: Sequence[str], has_more: bool) -> str:
    return ", ".join(f'"{word}"' for word in words) + (" etc." if has_more else "")
