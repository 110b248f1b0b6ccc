"""Do the paths of every head add up to its push, on real models too?

Method: for prompts of facts in random order, every head's push toward the model's own prediction is
compared with the sum of its shares, for one step and for two, and the logit with the sum of all its
owners. The worst error is printed. What it shows is in docs/evidence.md.

    python analyses/measured/paths_closed.py pocket
    python analyses/measured/paths_closed.py FOLDER --model smollm2 --prompts 30
"""

import random
from argparse import ArgumentParser

import pandas as pd

import ffnprobe as fp
from analyses.script import run_script
from ffnprobe.facts.formats import read_facts
from ffnprobe.tracing.attention import find_owners
from ffnprobe.tracing.trace import predicted
from ffnprobe.views.terminal import print_tables

DEPTHS = (1, 2)


def main(argv: list[str] | None = None) -> None:
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="pocket", help="a model's name or folder")
    parser.add_argument("facts_from", metavar="FACTS", help="pocket, a file or a folder of facts")
    parser.add_argument("--prompts", type=int, default=30, help="how many prompts")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the facts")
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    rows = list(read_facts(options.facts_from, templates="first").rows)
    random.Random(options.seed).shuffle(rows)
    prompts = list(dict.fromkeys(row.prompt for row in rows))[: options.prompts]
    table = pd.DataFrame([measure(fp.run(model, prompt)) for prompt in prompts])
    heads = model.config.layers * model.config.heads
    title = f"{model.name}: worst errors over {heads} heads of {len(table)} prompts, in logits"
    worst = table.drop(columns="prompt").abs().max()
    print_tables({title: pd.DataFrame({"what": worst.index, "worst": worst.to_numpy()})})


def measure(trace: fp.Trace) -> dict[str, str | float]:
    """Return how far shares are from pushes, the worst head of a prompt, and the largest push."""
    token = predicted(trace)
    (pushes,) = fp.attribute(trace, token).pieces
    heads = pushes.account.heads.double()
    found: dict[str, str | float] = {"prompt": trace.prompt}
    for depth in DEPTHS:
        paths = fp.paths(trace, token, depth=depth)
        shares = paths.steps[0].shares.double().sum(dim=(2, 3))
        found[f"a head's shares, {depth} deep"] = max(
            float((shares - heads).abs().max()), paths.remainder
        )
    found["the owners of the logit"] = find_owners(pushes).total - pushes.logit
    found["the largest push of a head"] = float(heads.abs().max())
    return found


if __name__ == "__main__":
    run_script(main)
