"""`ffnprobe ablate PROMPT ANSWER`: the exact effect of ablating each neuron."""

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import (
    BosOption,
    ContrastFromOption,
    ContrastOption,
    Convention,
    ConventionOption,
    NeuronsOption,
    PromptArgument,
    Replace,
    ReplaceOption,
    StoreOption,
    note_spelling,
    open_store,
    read_contrast,
    read_positions,
    read_prompt,
    show_progress,
)
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
    prompt: PromptArgument,
    answer: Annotated[
        str, typer.Argument(help='The answer, with its leading space: " basketball".')
    ],
    versus: Annotated[str | None, typer.Option(help="Subtract the logit of this token.")] = None,
    replace: ReplaceOption = None,
    contrast: ContrastOption = None,
    contrast_from: ContrastFromOption = None,
    convention: ConventionOption = Convention.centred,
    store: StoreOption = None,
    position: Annotated[
        str, typer.Option(help="Positions to ablate at: -1, 3, 3,5 (together) or all.")
    ] = "-1",
    neuron: Annotated[
        list[str] | None,
        typer.Option(help="Only these neurons: L3N12, L3, L3N5-L3N9 (repeatable)."),
    ] = None,
    layers: Annotated[
        bool, typer.Option("--map", help="Ablate whole MLP layers, position by position.")
    ] = False,
    method: Annotated[
        Method, typer.Option(help="Exact effects, a fast gradient estimate, or both.")
    ] = Method.exact,
    log_probability: Annotated[
        bool, typer.Option(help="Also show the effect on the log-probability.")
    ] = True,
    top: NeuronsOption = 10,
    bos: BosOption = None,
) -> None:
    """Ablate each neuron in turn and measure what the answer loses (positive: it helped)."""
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
        "contrast": read_contrast(model, text, answer, contrast, contrast_from),
        "convention": convention.value,
    }
    if (scanned := open_store(model, store)) is not None and asked["contrast"] is not None:
        raise OptionRefused(
            "--store gives means over its corpus; with contrast prompts, means over them are used.",
            remedy="leave out --store, or --contrast",
        )
    if scanned is not None:
        if replace is Replace.zero:
            raise OptionRefused(
                "--store gives means, which --replace zero does not use.", remedy="--replace mean"
            )
        asked["replace"] = scanned.means
    if layers:
        with show_progress(common, "layers") as progress:
            found = ablation.ablate_layers(
                trace, answer, log_probability=log_probability, progress=progress, **asked
            )
        title = f"what {found.provenance.answer} loses without each MLP layer, in logits"
        common.emit({"map": found.table}, found.provenance, title=title, result=found)
        return
    # Whoever names two neurons wants those two, not an error that there are no ten.
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
        common.note(f"Spearman correlation of estimates and effects: {agreement:.3f}")
    common.note(_describe(effects))
    common.note(effects.caption)
    title = f"what {effects.provenance.answer} loses without each neuron, in logits"
    common.emit({"effects": table}, effects.provenance, title=title, result=effects)


def _describe(effects: "Effects") -> str:
    """Write the answer's logit and probability before ablation."""
    shown, clean = effects.provenance, effects.clean
    than = "" if shown.versus is None else f" above {shown.versus}"
    chance = clean.log_probability
    probability = "" if chance is None else f", probability {math.exp(float(chance)):.4g}"
    return f"{shown.answer}: logit {float(clean.logit):.3f}{than}{probability}"
