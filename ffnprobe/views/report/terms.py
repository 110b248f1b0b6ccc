"""What the words and marks on a page mean, for a reader who has never seen the tool."""

MARKS = {
    "␣ ⏎ ⇥": "a space, a line break, a tab in a token; ⟨E2⟩ is a byte that is only part of a character",
    "token": "what the model reads and writes: a word, a part of a word, or a character; ␣basketball has a leading space",
    "<|endoftext|>": "the BOS token before the text, as in the model's training; it is position 0",
}
NEURONS = {
    "L3N12": "neuron 12 of layer 3, both counted from 0",
    "question": "what a neuron looks for; question tokens are those whose embedding matches it best; above layer 0 they are only a hint",
    "activation": "how strongly the neuron answers at a token; most neurons are a little below zero most of the time",
    "answer": "what the neuron adds, scaled by its activation; answer tokens are those it makes likelier, negated where the activation is negative",
}
PROMPTS = {
    "logit": "the model's score for a next token; one more unit multiplies its odds by e",
    "push": "what a neuron adds to the answer's logit directly, above the mean over all tokens (or above the rival's logit); a neuron before the last token adds nothing directly",
    "push through attention": "what attention heads carry of it to the answer, however many of them one after the other, with their patterns as they were",
    "through": "the attention head that carried most of a push from an earlier token to the answer",
    "effect": "what the answer's logit loses when the neuron is ablated and the rest of the model runs again, so that all later layers can react",
    "ablated": "its activation is replaced by its mean over the same sentence about others; without these by its mean over a corpus if that is known, else by zero",
    "z": "how much this neuron's answer favours the token over all tokens, in standard deviations, with the sign the neuron acted with here; from the weights alone",
    "grade": "how many of three tests the neuron passes: weights (z), push, effect, each above a bar that is not passed by chance however many neurons are looked at. A is all three, with an effect of at least 2 % of what all neurons are worth here; B two, C one; a question mark: near its bar. A grade counts evidence for the neuron; it does not mean that the fact is stored in it",
}
SURVEY = {
    "kind": "derived from the numbers: prediction (promotes a few tokens strongly), suppression (suppresses a few), entropy (writes where the unembedding barely reads), partition (pushes one large set of tokens against another), unlabelled",
    "promotes, suppresses": "the tokens the answer makes likelier and less likely, by the weights",
    "reads writes, role": "the cosine between question and answer: near 1 a neuron strengthens what it reads, near −1 it erases it, in between it translates",
    "vocab mean … kurtosis": "moments over all tokens of the cosine between the answer and the token; a normal distribution has kurtosis 3",
    "null space": "the share of the answer's norm that the unembedding barely reads",
}
