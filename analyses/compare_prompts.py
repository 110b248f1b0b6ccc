"""Which neurons make the difference between two prompts?

Method: direct logit attribution of the same answer on both prompts (the prediction after the first
rather than that after the second), and the difference of the two, part by part. It adds up to the
difference of the two logits. Neurons are listed by their difference in push and in activation.

Found on pocket, for Michael Jordan and Tiger Woods: ␣basketball is 14.0 logits above ␣golf on the one
and 14.3 below on the other, 28.3 apart. At the last position attention brings nearly all of it, 22.7 in
layer 5 and 3.5 in layer 6; the neurons there 1.7. What attention carries is recalled at the subject.

    python analyses/compare_prompts.py "Michael Jordan plays the sport of" \\
        "Tiger Woods plays the sport of" --html jordan_woods.html
"""

import ffnprobe as fp
from analyses.script import new_parser, run_script
from ffnprobe.views.terminal import print_tables

SHORT = ["layer", "neuron", "question_tokens"]


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, model=True)
    parser.add_argument("prompt", help="the first prompt")
    parser.add_argument("other", help="the second prompt; it may be longer or shorter")
    parser.add_argument("--answer", help="one token (default: what is said after the first)")
    parser.add_argument("--versus", help="its rival (default: what is said after the second)")
    parser.add_argument("--position", type=int, default=-1, help="in the first prompt (-1: last)")
    parser.add_argument("--other-position", type=int, default=-1, help="in the second prompt")
    parser.add_argument("--top", type=int, default=10, help="how many neurons are listed")
    options = parser.parse_args(argv)
    first, second = fp.run(fp.load(options.model), [options.prompt, options.other])
    comparison = fp.compare(
        first, second, options.answer, versus=options.versus,
        position=options.position, other_position=options.other_position,
    )  # fmt: skip
    by_push = comparison.top(options.top)
    by_activation = comparison.top(options.top, by="activation")
    print(comparison.title)
    print_tables({
        "neurons by their difference of pushes": by_push.drop(columns=SHORT),
        "neurons by their difference of activations": by_activation.drop(columns=SHORT),
        f"layer by layer, of {comparison.difference:+.3f} logits": comparison.by_layer(),
    })  # fmt: skip
    if options.html:
        fp.save(comparison, options.html)


if __name__ == "__main__":
    run_script(main)
