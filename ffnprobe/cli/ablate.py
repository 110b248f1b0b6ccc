"""`ffnprobe ablate PROMPT ANSWER`: what the answer loses without each neuron, exactly."""

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ffnprobe.cli.answers import note_spelling
from ffnprobe.cli.command import (
    BosOption,
    Common,
    Convention,
    ConventionOption,
    Replace,
    ReplaceOption,
    command,
    read_prompt,
)
from ffnprobe.cli.positions import read_positions
from ffnprobe.cli.progress import show_progress
from ffnprobe.cli.stores import StoreOption, open_store
from ffnprobe.errors import OptionRefused

if TYPE_CHECKING:
    from ffnprobe.interventions.ablation import Effects


class Method(StrEnum):
    exact = "exact"
    gradient = "gradient"
    both = "both"


@command
def ablate(
    common: Common,
    prompt: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    answer: Annotated[
        str, typer.Argument(help='The answer; include the leading space: " basketball".')
    ],
    versus: Annotated[str | None, typer.Option(help="Compare with this token's logit.")] = None,
    replace: ReplaceOption = None,
    convention: ConventionOption = Convention.centred,
    store: StoreOption = None,
    position: Annotated[
        str, typer.Option(help="Where to remove neurons: -1, 3, 3,5 (together) or all.")
    ] = "-1",
    neuron: Annotated[
        list[str] | None, typer.Option(help="Only these: L3N12, L3, L3N5-L3N9 (repeatable).")
    ] = None,
    layers: Annotated[
        bool, typer.Option("--map", help="Whole MLP layers at each position, not neurons.")
    ] = False,
    method: Annotated[
        Method, typer.Option(help="Exact effects, the fast gradient estimate, or both.")
    ] = Method.exact,
    log_probability: Annotated[
        bool, typer.Option(help="Also the effect on the log-probability.")
    ] = True,
    top: Annotated[int, typer.Option("--top", "-k", help="How many neurons.")] = 10,
    bos: BosOption = None,
) -> None:
    """Remove each neuron in turn and measure what the answer loses (positive: it helped)."""
    text, positions = read_prompt(prompt), read_positions(position)
    model = common.load()
    from ffnprobe.interventions import ablation, gradients
    from ffnprobe.interventions.choices import choose_neurons
    from ffnprobe.tracing.running import run

    trace = run(model, text, bos=bos, patterns=False)
    note_spelling(common, model.vocab, answer)
    asked: dict[str, Any] = {
        "versus": versus,
        "replace": None if replace is None else replace.value,
        "convention": convention.value,
    }
    if (scanned := open_store(model, store)) is not None:
        if replace is Replace.zero:
            raise OptionRefused("--store gives the means of a scan.", remedy="--replace mean")
        asked["replace"] = scanned.means
    if layers:
        with show_progress(common, "layers") as progress:
            found = ablation.ablate_layers(
                trace, answer, log_probability=log_probability, progress=progress, **asked
            )
        title = f"what {found.provenance.answer} loses without each MLP layer, in logits"
        common.emit({"map": found.table}, found.provenance, title=title, result=found)
        return
    # Who names two neurons wants these two, not an error that there are no ten.
    many = top if neuron is None else min(top, int(choose_neurons(model, neuron).sum()))
    if method is Method.gradient:
        estimates = gradients.estimate(trace, answer, **asked)
        title = f"an estimate of what {estimates.provenance.answer} loses without each neuron"
        table = estimates.top(many, position=positions, neurons=neuron)
        common.emit({"estimates": table}, estimates.provenance, title=title, result=estimates)
        return
    with show_progress(common, "neurons") as progress:
        effects = ablation.ablate(
            trace, answer, position=positions, neurons=neuron, log_probability=log_probability,
            progress=progress, **asked,
        )  # fmt: skip
    table = effects.top(many)
    if method is Method.both:
        estimates = gradients.estimate(trace, answer, **asked)
        known = estimates.over(effects.positions)[list(table.layer), list(table.neuron)]
        table.insert(list(table.columns).index("effect") + 1, "estimate", known.numpy())
        agreement = estimates.agreement(effects)
        common.note(f"ranks of estimate and effect agree to {agreement:.3f} (Spearman)")
    common.note(_describe(effects))
    common.note(effects.caption)
    title = f"what {effects.provenance.answer} loses without each neuron, in logits"
    common.emit({"effects": table}, effects.provenance, title=title, result=effects)


def _describe(effects: "Effects") -> str:
    """Write the answer's clean figures."""
    shown, clean = effects.provenance, effects.clean
    than = "" if shown.versus is None else f" above {shown.versus}"
    chance = clean.log_probability
    probability = "" if chance is None else f", probability {math.exp(float(chance)):.4g}"
    return f"{shown.answer}: logit {float(clean.logit):.3f}{than}{probability}"
