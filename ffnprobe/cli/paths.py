"""`ffnprobe paths PROMPT ANSWER`: who owns what attention pushed toward this word."""

from typing import Annotated

import typer

from ffnprobe.cli.answers import note_spelling
from ffnprobe.cli.command import BosOption, Common, command, read_prompt


@command
def paths(
    common: Common,
    prompt: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    answer: Annotated[str, typer.Argument(help='What comes next, one token: " basketball".')],
    versus: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Rather than this token.")
    ] = None,
    position: Annotated[int, typer.Option(help="Where it is predicted; -1 is the last.")] = -1,
    depth: Annotated[
        int, typer.Option(help="1 takes heads apart; 2 also the heads that they read.")
    ] = 1,
    top: Annotated[int, typer.Option("--top", "-k", help="How many parts.")] = 10,
    bos: BosOption = None,
) -> None:
    """Table the neurons and embeddings that pushed hardest through attention, in logits.

    As json and md, also every head's push with its shares, which add up to it, and every position's.
    """
    text = read_prompt(prompt)
    model = common.load()
    from ffnprobe.tracing.paths import paths as find_paths
    from ffnprobe.tracing.trace import run

    trace = run(model, text, bos=bos)
    found = find_paths(trace, answer, versus=versus, position=position, depth=depth)
    note_spelling(common, model.vocab, answer)
    common.note(
        f"{found.provenance.answer}: logit {found.pushes.logit:.3f}, "
        f"{found.push:+.3f} of it through heads; each head's shares add up to its push within "
        f"{found.remainder:.1e}"
    )
    tables = found.tables() | {"rows": found.top(top), "neurons": found.by_neuron(top)}
    title = f"who pushed {found.provenance.answer} through attention, in logits"
    common.emit(tables, found.provenance, title=title, result=found, shown=("rows", "positions"))
