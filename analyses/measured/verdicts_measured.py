"""How few neurons carry a fact, is it about its subject, and do the grades hold?

Method: facts that the model knows, drawn by seed from a table, each explained by the default command.
Counted: facts whose answer is no longer first without the first 5, 10, 20, 50 neurons of the verdict's
ranking; the answers that change when the verdict's neurons are set to the same values in the same sentence
about other subjects of the table; subjects whose last token is among those the prompt was found to be about.
Of the neurons with an A: how many a prompt, the share with an A under another seed, and the share that keeps
a positive effect in another template. `--alone` compares with nothing. `--random` explains random tokens
instead, for a model whose weights are random: there every A is chance. What it shows is in docs/evidence.md.

    python analyses/measured/verdicts_measured.py FOLDER --model smollm2 --facts 60 --seed 7
    python analyses/measured/verdicts_measured.py pocket --facts 200
"""

import random
from collections import Counter
from typing import Any

import pandas as pd
import torch

import ffnprobe as fp
from analyses.measured.evidence.facts import Known, find_known
from analyses.script import new_parser, run_script
from ffnprobe.errors import FfnProbeError
from ffnprobe.evidence.curve import read_after
from ffnprobe.evidence.explanation import read_sites
from ffnprobe.facts.formats import read_facts
from ffnprobe.interventions.replay import read_answer
from ffnprobe.interventions.sweeps import Change
from ffnprobe.views.terminal import print_tables

SIZES, OTHERS, LENGTH = (5, 10, 20, 50), 12, 8


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, model=True)
    parser.add_argument("facts_from", metavar="FACTS", help="pocket, a file or a folder of facts")
    parser.add_argument("--facts", type=int, default=60, help="how many known facts")
    parser.add_argument("--seed", type=int, default=0, help="by which they are drawn")
    parser.add_argument("--of-a-relation", type=int, default=6, help="at most so many of each")
    parser.add_argument("--alone", action="store_true", help="compare with no other subjects")
    parser.add_argument("--random", action="store_true", help="random tokens, no facts")
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    if options.random:
        rows = [count_chance(model, options.seed + n) for n in range(options.facts)]
        print_tables({f"{model.name}'s tokens": pd.DataFrame(rows).mean().to_frame("mean").T})
        return
    stated = {row.prompt: row for row in read_facts(options.facts_from, templates="all").rows}
    drawn, rows = Counter[str](), list[dict[str, Any]]()
    for fact in find_known(model, options.facts_from, seed=options.seed, contrasts=OTHERS):
        if fact is None or len(rows) == options.facts:
            break
        relation = stated[str(fact.trace.prompt)].relation
        if drawn[relation] < options.of_a_relation:
            drawn[relation] += 1
            rows.append(measure(fact, stated, is_alone=options.alone))
    table = pd.DataFrame(rows).astype(float)
    print_tables({f"{model.name}, {len(rows)} facts": table.mean().to_frame("mean").T})


def measure(fact: Known, stated: dict[str, fp.FactRow], *, is_alone: bool) -> dict[str, Any]:
    """Explain a fact; say how few neurons carry it, what they cost others, and how its grades hold."""
    model, prompt = fact.trace.model, str(fact.trace.prompt)
    asked: dict[str, Any] = {"contrast": "none"} if is_alone else {}
    found = fp.explain(model, prompt, fact.token, **asked)
    curve = found.curve
    assert curve is not None
    least = curve.least
    row: dict[str, Any] = {f"within {n}": least is not None and least <= n for n in SIZES}
    row["others changed"] = None if least is None else count_changed(fact, curve.sites[:least])
    row["compared"] = found.question.contrast is not None
    own = stated[prompt].subject
    end = prompt.find(own) + len(own)
    reached = [len(model.vocab.text(fact.trace.ids[fact.trace.has_bos : p + 1])) for p in found.subject]  # fmt: skip
    row["subject found"] = None if not own else any(abs(end - at) <= 1 for at in reached)
    best = found.neurons[found.neurons.grade == "A"]
    row["A"] = len(best)
    if len(best):
        again = fp.explain(model, prompt, fact.token, seed=1, **asked).neurons
        grades = dict(zip(again.name + again.token, again.grade, strict=True))
        kept = [grades.get(key, "")[:1] == "A" for key in best.name + best.token]
        row["A under another seed"] = sum(kept) / len(kept)
        row["A in another template"] = keep_effects(model, stated, prompt, found)
    return row


def count_changed(fact: Known, sites: pd.DataFrame) -> float:
    """Return the share of other subjects' answers that change without the same neurons."""
    changed, contrast = 0, fact.contrast
    for other, token, places in zip(
        contrast.others, contrast.answers, contrast.alignment.counterparts, strict=True
    ):
        group = [
            Change(name.layer, there, name.neuron, value)
            for (name, position), value in zip(read_sites(sites), sites.set_to, strict=True)
            if (there := places[position]) is not None
        ]
        with torch.no_grad():
            changed += read_after(read_answer(other, token), [group])[0].rank > 1
    return changed / len(contrast.others)


def keep_effects(
    model: fp.Model, stated: dict[str, fp.FactRow], prompt: str, found: fp.Explanation
) -> float | None:
    """Return the share of the A neurons with a positive effect in another template of the same fact.

    There each is removed at the same token of the subject, to its mean over the same sentence about others.
    """
    own = stated[prompt]
    texts = [text for text, row in stated.items() if row.fact == own.fact and text != prompt]
    best = found.neurons[found.neurons.grade == "A"]
    for text in texts:
        trace = fp.run(model, text)
        token = found.question.readout.tokens[0]
        if int(trace.logits[-1].argmax()) != token:
            continue
        try:
            there = fp.explain(model, text, token).question
        except FfnProbeError:
            continue
        last, spaceless = found.question.position, [token.lstrip("␣") for token in trace.tokens]
        sites = [
            (name, len(trace) - 1 if position == last else spaceless.index(token.lstrip("␣")))
            for (name, position), token in zip(read_sites(best), best.token, strict=True)
            if position == last or token.lstrip("␣") in spaceless
        ]
        with torch.no_grad():
            lost = there.remove_each(sites)
        return sum(value > 0 for value in lost.values()) / len(best)
    return None


def count_chance(model: fp.Model, seed: int) -> dict[str, int]:
    """Count the grades of an answer to random tokens; the model's weights are its own."""
    draw = random.Random(seed)
    ids = [draw.randrange(model.config.vocab) for _ in range(LENGTH)]
    found = fp.explain(model, ids).neurons.grade
    return {letter: int((found.str[:1] == letter).sum()) for letter in "ABC"}


if __name__ == "__main__":
    run_script(main)
