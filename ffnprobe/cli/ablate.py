"""`ffnprobe ablate PROMPT ANSWER`: the exact effect of ablating each neuron."""

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import (
    AnswerArgument,
    BosOption,
    ContrastFromOption,
    ContrastOption,
    Convention,
    ConventionOption,
    HooksOption,
    NeuronsOption,
    PromptArgument,
    Replace,
    ReplaceOption,
    StoreOption,
    VersusOption,
    note_spelling,
    note_trailing_space,
    open_store,
    read_contrast,
    read_positions,
    read_prompt,
    show_progress,
)
from ffnprobe.errors import OptionRefused

if TYPE_CHECKING:
    from ffnprobe.interventions.ablation import Effects
    from ffnprobe.interventions.group_ablation import GroupEffects


class EffectMethod(StrEnum):
    exact = "exact"
    gradient = "gradient"
    both = "both"


@command
def ablate(
    common: Common,
    prompt: PromptArgument,
    answer: AnswerArgument,
    versus: VersusOption = None,
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
        typer.Option(
            help="Only these neurons: L3N12, L3N12@2 (at position 2), L3, L3N5-L3N9 (repeatable)."
        ),
    ] = None,
    together: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NEURON,…",
            help="Ablate these neurons at once: L3N1,L3N5 or L3N1@2,L3N5@6 (repeatable).",
        ),
    ] = None,
    layers: Annotated[
        bool, typer.Option("--map", help="Ablate whole MLP layers, position by position.")
    ] = False,
    method: Annotated[
        EffectMethod, typer.Option(help="Exact effects, a fast gradient estimate, or both.")
    ] = EffectMethod.exact,
    log_probability: Annotated[
        bool, typer.Option(help="Also show the effect on the log-probability.")
    ] = True,
    top: NeuronsOption = 10,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """Ablate each neuron in turn and measure what the answer loses (positive: it helped)."""
    text, positions = read_prompt(prompt), read_positions(position)
    if together is not None and (neuron is not None or layers or method is not EffectMethod.exact):
        raise OptionRefused(
            "--together ablates several neurons at once, exactly.",
            remedy="leave out --neuron, --map and --method",
        )
    model = common.load(hooks=hooks)
    from ffnprobe.interventions import ablation, gradients
    from ffnprobe.interventions.choices import choose_neurons, split_positions
    from ffnprobe.tracing.running import run

    trace = run(model, text, bos=bos, patterns=False)
    note_spelling(common, model.vocab, answer)
    note_trailing_space(common, model, text, answer, bos)
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
        if common.is_for_terminal:
            from ffnprobe.views.terminal.explanations import lay_out_map
            from ffnprobe.views.terminal.printing import print_grid

            common.write(found)
            print_grid(title, lay_out_map(found.table), note=found.caption)
        else:
            common.emit({"map": found.table}, found.provenance, title=title, result=found)
        return
    if together is not None:
        groups = ablation.ablate(
            trace, answer, together=[group.split(",") for group in together], position=positions,
            log_probability=log_probability, **asked,
        )  # fmt: skip
        common.note(_describe(groups))
        title = f"what {groups.provenance.answer} loses without several neurons at once, in logits"
        common.emit(groups.tables(), groups.provenance, title=title, result=groups)
        return
    # Whoever names two neurons wants those two, not an error that there are no ten.
    named, _ = split_positions(neuron, positions)
    many = top if named is None else min(top, int(choose_neurons(model, named).sum()))
    if method is EffectMethod.gradient:
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
    if method is EffectMethod.both:
        estimates = gradients.estimate(trace, answer, **asked)
        known = estimates.over(effects.positions)[list(table.layer), list(table.neuron)]
        table.insert(list(table.columns).index("effect") + 1, "estimate", known.numpy())
        agreement = estimates.agreement(effects)
        common.note(f"Spearman correlation of estimates and effects: {agreement:.3f}")
    common.note(_describe(effects))
    where = " ".join(trace.tokens[place] for place in effects.positions)
    title = f"what {effects.provenance.answer} loses without each neuron at {where}, in logits"
    if neuron is None and position == "-1":
        elsewhere = gradients.estimate(trace, answer, **asked).describe_elsewhere(effects.positions)
        title += f"; {elsewhere}" if elsewhere else ""
    common.emit({"effects": table}, effects.provenance, title=title, result=effects)


def _describe(effects: "Effects | GroupEffects") -> str:
    """Write the answer's logit and probability before ablation."""
    shown, clean = effects.provenance, effects.clean
    than = "" if shown.versus is None else f" above {shown.versus}"
    chance = clean.log_probability
    probability = "" if chance is None else f", probability {math.exp(float(chance)):.4g}"
    # Without a rival, a centred logit is not the one that the model gives.
    mean = " above the vocabulary's mean" if not than and shown.convention == "centred" else ""
    return f"{shown.answer}: logit {float(clean.logit):.3f}{than}{mean}{probability}"
