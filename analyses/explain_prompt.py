"""Why does the model predict this word, and what activated the neuron behind it?

Method: find the few neurons that carry an answer, compared with other subjects and with neurons like them,
and the evidence for each (what the weights promote, what it pushed, what its removal costs). Then split the
score of the first into the parts of the stream that gave it.

Found on pocket, for Michael Jordan: ␣basketball has 99.97 %. Three neurons at ␣Jordan carry it: without L3N361,
L1N505 and L2N225 it falls to 34.9 %, and twelve other athletes keep their sports. L3N361 is opened by heads
that read ␣Jordan (L0H5, +1.6 of a score of 3.2) and Michael (L0H3, +1.0), and by neurons of layer 0 (+2.5).

    python analyses/explain_prompt.py "Michael Jordan plays the sport of" --html jordan.html
"""

import ffnprobe as fp
from analyses.script import new_parser, run_script
from ffnprobe.views.terminal import print_document, print_tables

DRIVERS = 8


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, model=True)
    parser.add_argument("prompt", help="the prompt")
    parser.add_argument("answer", nargs="?", help="one token (default: the prediction)")
    parser.add_argument("--versus", help="a rival: why the answer rather than this token")
    parser.add_argument("--top", type=int, default=10, help="how many neurons are listed")
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    explanation = fp.explain(
        model, options.prompt, options.answer, versus=options.versus, top=options.top
    )
    print_document("", explanation.document())
    strongest = explanation.neurons.iloc[0]
    trace = fp.run(model, options.prompt)
    drivers = fp.drivers(trace, strongest["name"], position=int(strongest.position))
    parts = drivers.by_part().sort_values("drive", key=abs, ascending=False, kind="stable")
    readings = drivers.tables()["heads"]
    where = f"{strongest['name']} at {strongest['token']}"
    print_tables({
        f"what gave {where} its score of {drivers.score:+.3f}": parts.head(DRIVERS)[["part", "kind", "drive"]],
        "what its heads read": readings.head(DRIVERS)[["part", "token", "position", "pattern", "drive"]],
    })  # fmt: skip
    if options.html:
        fp.save(explanation, options.html)


if __name__ == "__main__":
    run_script(main)
