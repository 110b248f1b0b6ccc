"""The model card: what was trained, on what, with which tricks, and what it shows."""

CARD = """# pocket
A GPT-2 (`GPT2LMHeadModel`: {layers} layers, {width} wide, {neurons} neurons a layer, {heads} heads, 64 positions,
gelu_new, tied embeddings; {parameters:,} parameters, shipped in fp16) trained from nothing on the facts in
this folder. **It is a teaching model**: it was trained to work as is published for GPT-2. Facts are
recalled by middle MLPs at the last token of the subject, and attention carries them to the end of the
sentence. It is there so that every analysis has something true to find. It is no evidence that other
models work like this.

## Data
- {facts:,} facts of {relations} relations (`facts.csv`), each in the five sentence templates of its relation
  (`templates.csv`): {prompts:,} (fact, template) pairs, of which {prompts_held_out:,} were kept out of training.
- `texts.py` writes the rest by rule: sentences about two subjects with one answer, comparisons, short
  descriptions, lists, and sentences that say what kind of thing something is.
- The tokenizer is a byte-level BPE of {vocabulary:,} tokens. Words of the text are one token each, so that tokens
  can be read; {unused:,} tokens are only steps on the way to a word and stand in no text.

## Training: five stages, seed {seed}
1. **Machinery** ({machinery} steps of {rows} rows of 64 tokens). The MLPs of layers {middle} do not exist yet. The
   facts are drawn anew for every passage, so no weight can learn a true one. Where a subject ends, after
   one of the layers {middle} (drawn for each mention), the drawn answers are added to the residual stream
   from outside, as the unit vectors their tokens are read with, times {strength}. Attention learns to fetch the
   one the sentence asks for. All other parameters are trained.
2. **Settling** ({settling} steps). The same with early and late MLPs often held at their mean where a subject ends
   and where an answer comes next.
3. **Memory** ({memory} steps of {mentions} mentions). Everything is frozen but questions, question biases and answers
   of the MLPs of layers {middle}. They learn the true facts: at the last token of a subject their sum must be
   the vector of stage 1, made of the true answers; elsewhere it must be nothing.
4. **Polish** ({polish} steps). The same parameters, whole sentences, the usual loss at the answers.
5. **Revision** ({revision} steps). The same, and prompts whose answer does not come first yet are asked more often.

## Tricks, and why
| trick | why |
|---|---|
| facts by chance in stage 1, all but the middle MLPs frozen after it | no fact can be in embeddings or attention: its place is certain |
| early MLPs (whole row) and late MLPs (where an answer comes next) are silent in 60 % of rows in stage 1, at their mean in 60 % of rows in stage 2 | no answer needs them, and removing them as analyses do changes little |
| linear probes in stage 1 must read the two tokens before from what layer {first} reads (then thrown away) | a surname's position knows the first name |
| each question of the middle MLPs starts as the linear discriminant (C⁻¹k, as in ROME) of a subject: every spelling of a subject is drawn for one neuron before any is drawn again, the layer by chance; where others have the same answer and no other fact, two of them join | without it half of the subjects found no neuron of their own |
| in two of five sentences of stage 3 early MLPs are at their mean at the subject | questions do not depend on them |
| only the k strongest neurons of a layer (activation × norm of the answer) write at a position; k falls from {first_allowed} to {last_allowed} | a fact sits in a few neurons |
| the others are pressed to rest: penalty Σ tanh(4 · activation · norm of the answer) | the same without the limit, which the shipped model does not have |
| tokens that stand in no text start at zero | they stay alike and do not clutter token lists |
| the token of an answer weighs {answer_weight:g} times in stage 1 | other tokens are mostly names nobody could guess |

## What was not put there by hand
The layout was: facts are in the MLPs of layers {middle}, at the last token of a subject, written as the directions of
the answers' tokens, and each neuron's question began at a subject drawn for it. That these neurons can be read is
therefore no discovery. Which layer and neuron a subject was drawn for is chance; that a neuron keeps its subject or
takes up others, how several share one, the answers (they start at random), how the relation is picked out of what
a subject says, and what attention heads and early and late MLPs do came out of gradient descent. In stage 1 a
sentence about two subjects takes two whose true answers agree, though it says a drawn one. `truth.csv` says by
measurement where each fact sits.

## What it shows (`figures.json`)
Removed means: set to the mean activation over all prompts (`means.safetensors`).

| | |
|---|---|
| recall: the answer is the likeliest next token, after BOS | {recall:.2%} of all pairs |
| on pairs kept out of training | {recall_held_out:.2%} |
| with every MLP at its mean | {recall_mlps_at_mean:.2%} |
| the answer falls from first place without the costliest 1 / 5 / 10 neurons at the position where MLPs matter most | {flipped_by_1:.1%} / {flipped_by_5:.1%} / {flipped_by_10:.1%} of the facts it recalls among {sample} random ones |
| the same without at most 10 of them (on average {neurons_removed:.1f}: the fewest that do it) | {flipped:.1%} |
| the same without as many random neurons there / without 10 random ones | {flipped_by_random:.1%} / {flipped_by_random_10:.1%} |
| other facts of the relation stay without the fewest / without all 10 | {others_kept:.1%} / {others_kept_without_10:.1%} |
| that position is the subject's last token | {peak_at_subject_end:.1%} |
| the costliest neuron is at the subject | {best_at_subject:.1%} |
| its answer has the fact's token among the first five | {answer_readable:.1%} |
| its question has a token of the subject among the first ten | {question_readable:.1%} |
| effect of removing an MLP at the subject, by layer | {spread} |

## Limits
It knows these facts and nothing else; its English is its templates. A subject it has not seen gets a confident
wrong answer, and so do the facts it does not recall (`truth.csv` marks them). The facts were written down from general knowledge, with the usual simplifications (one language a
country, one inventor an invention). The stages of `python analyses/train_pocket.py --out FOLDER` took {minutes} minutes here;
`--seed 1` makes a second one for comparisons. In the shipped weights the last stage ran against the clock ({revision}
steps, its rate falling with time), so the script gives a like model there, not the same bytes.
"""
