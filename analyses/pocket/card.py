"""The model card: what was trained, on what, with which tricks, and what it shows."""

from pathlib import Path
from typing import Any

from analyses.pocket import lesson
from analyses.pocket.network import HEADS, LAYERS, MIDDLE, NEURONS, POSITIONS, WIDTH
from analyses.pocket.rows import Reader
from analyses.pocket.tokenizer import list_words
from analyses.pocket.training import ROWS, STAGES

CARD = """# pocket
A GPT-2 (`GPT2LMHeadModel`: {layers} layers, {width} wide, {neurons} neurons a layer, {heads} heads, {positions} positions,
gelu_new, tied embeddings; {parameters:,} parameters, shipped in fp16) trained from nothing on the facts in
this folder. **It is a teaching model**: it was trained to work as is published for GPT-2. Facts are
recalled by middle MLPs at the last token of the subject, and attention carries them to the end of the
sentence. It is there so that every analysis has something true to find. This is not evidence that other
models work like this.

## Data
- {facts:,} facts of {relations} relations (`facts.csv`), each in the five sentence templates of its relation
  (`templates.csv`): {prompts:,} (fact, template) pairs, of which {prompts_held_out:,} were kept out of training.
- `analyses/pocket/texts.py` writes the rest by rule: sentences about two subjects with one answer, comparisons, short
  descriptions, lists, and sentences that say what kind of thing something is.
- The tokenizer is byte-level, like GPT-2's. Its {vocabulary:,} tokens are BOS, the bytes and the {words:,} words of the text,
  so that every token can be read. A word that is not among them is spelt in bytes.

## Training: three stages, seed {seed}, {minutes:.0f} minutes on one busy core
Rows of {positions} tokens, {rows} a step, AdamW, one cycle of the learning rate each. The MLPs of layers {middle} are the middle
ones.

| stage | trains | steps | rate | rows by chance | quiet | free |
|---|---|---|---|---|---|---|
{stages}

- **Free** rows are ordinary training.
- In **quiet** rows every MLP is at its mean, but for the middle ones at the last token of a subject.
- In rows **by chance** facts are drawn anew for every passage, and the MLPs are at their mean (in `unlearn` the
  middle ones always, the others in every second row). Where a subject ends, the drawn answers are added to the
  stream from outside, after a middle layer drawn for each mention. In `unlearn` nothing is added in {untold:.0%} of
  the rows, and the model must say "?" instead of an answer.

In `remember` every second passage of every second row states a pair that is not recalled yet.

## Tricks, and why
| trick | why |
|---|---|
| quiet rows | a fact that only the subject's middle MLPs can tell is learnt there |
| rows by chance | attention learns to carry what stands at a subject, whatever it is |
| `unlearn` | after `learn`, facts were also in early MLPs, attention and embeddings: without the middle MLPs 99.7 % were still recalled. What the middle MLPs do not tell is now answered with "?" |
| in `remember` all but the middle MLPs is frozen | no fact can go elsewhere again: its place is certain |
| lens loss (weight {lens:g}): what the middle MLPs wrote at a subject's last token, read through the unembedding, must name all its answers | answers can be read, and a subject is known whatever words stand before it |
| home loss (weight {home:g}): each subject drew one neuron of the middle layers by lot, which should have the largest score of its layer there | a neuron's question is about few subjects and can be read |
| where subjects end, in half of the rows only the strongest neurons of a middle layer (activation × norm of the answer) write: from {fewer} | a fact sits in a few neurons |
| the others are pressed to rest: penalty Σ tanh(4 · activation · norm of the answer), weight {pressure} | the same without the limit, which the shipped model does not have |
| tokens that stand in no text start at zero | they stay alike and do not clutter token lists |
| the token of an answer weighs {answer_weight:g} times | other tokens are mostly names nobody could guess |

## What was not put there by hand
The layout was: facts are in the middle MLPs, at the last token of a subject, written as the directions of the
answers' tokens, and one neuron of each subject was drawn by lot. That these neurons can be read is therefore no
discovery. What those neurons ask, which others share a subject, how the relation is picked out of what a subject says,
how names of several tokens are put together, and what attention heads and the other MLPs do came out of gradient
descent. So did the recall of pairs that were kept out. `truth.csv` says by measurement where each fact sits, and
which neuron its subject drew.

## What it shows (`figures.json`)
Removed means: set to the mean activation over all prompts (`means.safetensors`).

| | |
|---|---|
| recall: the answer is the likeliest next token, after BOS | {recall:.2%} of all pairs |
| on pairs kept out of training | {recall_held_out:.2%} |
| with every MLP at its mean | {recall_mlps_at_mean:.2%} |
| the answer falls from first place without the costliest 1 / 5 / 10 neurons that `explain` lists | {flipped_by_1:.1%} / {flipped_by_5:.1%} / {flipped_by_10:.1%} of the facts it recalls among {sample} random ones |
| the same without at most 10 of them (on average {neurons_removed:.1f}: the fewest that do it) | {flipped:.1%} |
| the same without as many random neurons there / without 10 random ones | {flipped_by_random:.1%} / {flipped_by_random_10:.1%} |
| other facts of the relation stay without the fewest / without all 10 | {others_kept:.1%} / {others_kept_without_10:.1%} |
| the costliest neuron is at the subject / at its last token | {best_at_subject:.1%} / {best_at_subject_end:.1%} |
| its answer has the fact's token among the first five | {answer_readable:.1%} |
| its question has a token of the subject among the first ten | {question_readable:.1%} |
| effect of removing an MLP at the subject's last token, by layer | {spread} |
| of all facts: the costliest MLP is at the subject's last token / is that of layer 0 there | {costliest_at_subject_end:.1%} / {costliest_in_layer_0:.1%} |
| the answer falls without that MLP there / without all MLPs at the subject's last token / without the neuron drawn by lot | {is_lost:.1%} / {is_lost_at_subject:.1%} / {is_lost_without_home:.1%} |
| the same without the middle MLPs there / without the MLP of layer 0 there | {is_lost_without_middle:.1%} / {is_lost_without_first:.1%} |

The MLP of layer 0 is the costliest single one, although `unlearn` took the facts out of it: the middle MLPs read what it
writes, and without it they seldom recognise the subject. A single middle MLP costs less because most facts are spread
over several of them.

## Limits
It knows these facts and nothing else; its English is its templates. A subject it has not seen
gets a wrong answer or "?", and so do the facts it does not recall (`truth.csv` marks them). The facts were written down from
general knowledge, with the usual simplifications (one language a country, one inventor an invention).
`python analyses/pocket/train.py` makes it again; `--seed 1` makes a second one for comparisons.
"""


TRAINS = {
    "learn": "everything",
    "unlearn": "all but the answers of the middle MLPs",
    "remember": "the middle MLPs",
}


def write_card(figures: dict[str, Any], reader: Reader, out: Path) -> None:
    """Write the card from the figures."""
    stages = []
    for stage in STAGES:
        many = (f"{stage.steps:,}", f"{stage.rate:g}", *stage.rows, ROWS - sum(stage.rows))
        cells = (f"`{stage.name}`", TRAINS[stage.name], *many)
        stages.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    sparse = [stage for stage in STAGES if stage.pressure]
    shown = figures | {
        "layers": LAYERS, "width": WIDTH, "neurons": NEURONS, "heads": HEADS, "positions": POSITIONS,
        "middle": f"{MIDDLE[0]} to {MIDDLE[-1]}", "rows": ROWS, "stages": "\n".join(stages),
        "spread": ", ".join(f"L{n} {figures[f'effect_of_layer_{n}']:.0%}" for n in range(LAYERS)),
        "vocabulary": reader.tokenizer.get_vocab_size(), "words": len(list_words()),
        "lens": lesson.LENS, "home": lesson.HOME, "untold": lesson.UNTOLD,
        "answer_weight": lesson.ANSWER_WEIGHT / lesson.SHARE_READ,
        "fewer": ", then ".join(f"{s.fewer[0]} to {s.fewer[1]} in `{s.name}`" for s in sparse),
        "pressure": " and ".join(f"{s.pressure:g}" for s in sparse),
    }  # fmt: skip
    (out / "CARD.md").write_text(CARD.format(**shown))
