"""Where should `explain` look without contrast prompts: which rule finds the subject of a fact?

Method: facts that the model knows, of a table that names their subjects. Each rule gives every position
before the last a number, attention sinks aside; up to three positions are looked at, each with at least half
of the largest number, as in `explain`. Counted: facts in which the subject's last token has the largest
number, and is among the positions looked at. Rules: what the answer loses without each MLP layer, added up
where it is a loss (`layers`); estimates and pushes of single neurons, added up where they help the answer
(`estimates`, `pushes`). What it shows is in docs/evidence.md.

    python analyses/subject_found.py known_1000.json --model smollm2 --facts 60
"""

import random

import pandas as pd
from einops import reduce

import ffnprobe as fp
from ffnprobe.evidence.positions import AT_LEAST, MOST
from ffnprobe.facts.formats import read_facts
from ffnprobe.tracing.answers import answer_ids, predicted
from ffnprobe.tracing.owners import find_owners
from ffnprobe.tracing.sinks import find_sinks
from ffnprobe.views.terminal.printing import print_tables
from script import new_parser, run_script


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, model=True)
    parser.add_argument("facts_from", metavar="FACTS", help="a file of facts with their subjects")
    parser.add_argument("--facts", type=int, default=60, help="how many known facts")
    options = parser.parse_args(argv)
    model = fp.load(options.model, hooks=False)
    rows = list(read_facts(options.facts_from).rows)
    random.Random(1).shuffle(rows)
    found: list[dict[str, object]] = []
    for row in rows:
        if len(found) < 3 * options.facts and (asked := find_subject(model, row)) is not None:
            found += compare_rules(*asked)
    table = pd.DataFrame(found)
    summary = table.groupby("rule", sort=False)[["first", "found", "looked_at"]].mean()
    print_tables({f"{model.name}, {len(table) // 3} facts": summary.reset_index()})


def find_subject(model: fp.Model, row: fp.FactRow) -> tuple[fp.Trace, int, int] | None:
    """Run a known fact; return its trace, its answer and the position of its subject's last token."""
    tokens = answer_ids(model, row.answer)
    if len(tokens) > 1 or not row.subject or row.subject not in row.prompt:
        return None
    before = row.prompt.partition(row.subject)[0]
    trace, start = fp.run(model, row.prompt), fp.run(model, before + row.subject)
    last, ids = len(start) - 1, list(start.ids)
    is_whole = list(trace.ids[: last + 1]) == ids and last < len(trace) - 1
    is_seen = is_whole and last not in find_sinks(trace.activations)
    return (trace, tokens[0], last) if is_seen and predicted(trace) == tokens[0] else None


def compare_rules(trace: fp.Trace, answer: int, subject: int) -> list[dict[str, object]]:
    """Say for each rule whether it finds the subject, and at how many positions it looks."""
    layers = fp.ablate_layers(trace, answer, log_probability=False).values
    neurons = {
        "estimates": fp.estimate(trace, answer).values,
        "pushes": find_owners(fp.attribute(trace, answer).pieces[0]).through[:, : len(trace)],
    }
    numbers = {"layers": layers.clamp(min=0).sum(0)} | {
        rule: reduce(values.clamp(min=0), "layer pos neuron -> pos", "sum")
        for rule, values in neurons.items()
    }
    sinks = find_sinks(trace.activations)
    open_positions = [p for p in range(len(trace) - 1) if p not in sinks]
    rows: list[dict[str, object]] = []
    for rule, values in numbers.items():
        order = sorted(open_positions, key=lambda p: -float(values[p]))[:MOST]
        looked_at = [p for p in order if values[p] >= AT_LEAST * values[order[0]]]
        rows.append({"rule": rule, "first": order[0] == subject, "found": subject in looked_at,
                     "looked_at": len(looked_at)})  # fmt: skip
    return rows


if __name__ == "__main__":
    run_script(main)
