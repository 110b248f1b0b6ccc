"""What does each layer do with a prompt?

Method: read the stream after every attention and MLP as if it were the final one (the logit lens).
Follow the token at a position through every FFN: how many neurons are active, which is the strongest, how
much the layer adds. Also show what each layer pushed the answer directly.

Found on pocket, for Michael Jordan: attention in layer 5 takes ␣basketball from rank 5 to 1 (logit 6.6
to 16.2). At the last token the FFNs of layers 2 to 4 have no neuron above zero: facts are recalled there
at the subject, and carried to the end by attention.

    python analyses/layer_by_layer.py "Michael Jordan plays the sport of" --html layers.html
"""

import pandas as pd

import ffnprobe as fp
from analyses.script import new_parser, run_script
from ffnprobe.views.saving import save_figures
from ffnprobe.views.terminal import print_tables


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, model=True)
    parser.add_argument("prompt", help="the prompt")
    parser.add_argument("answer", nargs="?", help="one token (default: the prediction)")
    parser.add_argument(
        "--position", type=int, default=-1, help="which token is followed (-1: last)"
    )
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    trace = fp.run(model, options.prompt)
    position = trace.at(options.position)
    said = trace.predictions(1, position=position).id.item()
    answer = said if options.answer is None else options.answer
    lens = fp.lens(trace, answer, position=position)
    (pushes,) = fp.attribute(trace, answer, position=position).pieces
    stages = [fp.stages(trace, layer) for layer in range(model.config.layers)]
    passed = pd.concat([stage.table.iloc[[position]] for stage in stages], ignore_index=True)
    passed.insert(0, "layer", [f"L{stage.layer}" for stage in stages])
    busiest = int(passed.output.argmax())
    print_tables({
        f"what the stream says at {trace.tokens[position]}, on {lens.provenance.answer}": lens.table,
        "through each FFN": passed.drop(columns=["position", "token"]),
        "what each layer pushed, in logits": pushes.by_layer(),
    })  # fmt: skip
    if options.html:
        figures = [fp.plot(lens), fp.plot(trace, "lens"), fp.plot(pushes), fp.plot(stages[busiest])]
        save_figures(figures, options.html, title=f"Layer by layer: {options.prompt}")


if __name__ == "__main__":
    run_script(main)
