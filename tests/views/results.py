"""One of every result type, by name, of a model and a prompt."""

from typing import Any

import ffnprobe as fp


def every_result(
    model: fp.Model, prompt: list[int], answer: int, *, bos: bool = True
) -> dict[str, Any]:
    """Make one of every result type; the prompt is ids so that any model can be asked."""
    trace = fp.run(model, prompt, bos=bos)
    other = fp.run(model, [*prompt[:-1], answer], bos=bos)
    last = model.config.layers - 1
    pushes = fp.attribute(trace, answer)
    made = {
        "Trace": trace,
        "Lens": fp.lens(trace, answer),
        "Stages": fp.stages(trace, last),
        "Similarity": fp.similarity(trace),
        "Drivers": fp.drivers(trace, f"L{last}N1"),
        "Pushes": pushes,
        "Paths": fp.paths(trace, answer),
        "Comparison": fp.compare(trace, other),
        "Effects": fp.ablate(trace, answer),
        "LayerEffects": fp.ablate_layers(trace, answer),
        "GroupEffects": fp.ablate(trace, answer, together=[["L0N1"], ["L0N2", f"L{last}N3"]]),
        "Estimates": fp.estimate(trace, answer),
        "Steering": fp.steer(model, prompt, {"L0N1": 2.0}, generate=2, bos=bos),
        "Reading": fp.read(model, f"L{last}N1"),
        "Readings": fp.read(model, [f"L{last}N1", "L0N2"]),
        "Related": fp.read(model, "L0N1").related(3),
        "Explanation": fp.explain(model, prompt, answer, top=4, bos=bos),
        "Survey": fp.survey(model),
        "Match": fp.match(model, model, top=4),
    }  # fmt: skip
    # Where both prompts say the same there is nothing to carry.
    contrast = fp.contrast_with(trace, answer, [other], answers=[prompt[-1]])
    is_other = not trace.logits[-1].equal(other.logits[-1])
    circuit = fp.circuit(model, prompt, answer, contrast=contrast, keep=6, bos=bos, test=is_other)
    made["Circuit"] = circuit
    made |= {"Contrast": contrast, "ContrastPushes": fp.attribute(trace, answer, contrast=contrast)}
    if is_other:
        made["Recovery"] = circuit.recovery
        made["Patches"] = fp.patch(other, trace, answer, prompt[-1])
        made["LayerPatches"] = fp.patch_layers(other, trace, answer, prompt[-1])
    return made
