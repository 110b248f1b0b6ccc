"""What the words and marks on a page mean, for a reader who has never seen the tool."""

MARKS = {
    "␣ ⏎ ⇥": "a space, a line break, a tab within a token; ⟨E2⟩ is a byte that is only part of a character",
    "token": "what the model reads and writes: a word, a piece of one, or a sign; ␣basketball has a space in front",
    "<|endoftext|>": "a mark put before the text, as in the model's training; it is position 0",
}
NEURONS = {
    "L3N12": "neuron 12 of layer 3, both counted from 0",
    "question": "what a neuron looks for; question tokens are those whose embedding fits it best, a hint only above layer 0",
    "activation": "how strongly the neuron answers at a token; most neurons rest a little below zero",
    "answer": "what the neuron adds in that measure; answer tokens are those it makes likelier, turned round where the activation is negative",
}
PROMPTS = {
    "logit": "the model's score for a next token; probabilities grow with it by e per unit",
    "push": "what a neuron adds to the answer's logit directly, above the mean over all tokens (or above the rival's logit)",
    "effect": "what the answer's logit loses when the neuron is removed and the rest of the model runs again: measured, with all later layers free to react",
    "removed": "its activation set to its mean over a corpus where that is known, else to zero",
    "z": "how unusual the answer token is among all tokens for this neuron's answer, in standard deviations; by weights alone",
    "grade": "how many of three tests the neuron passes: weights (z at least 2), push, effect (each above 99 in 100 random neurons). A is all three, B two, C one. A grade says how much speaks for the neuron, not that the fact is stored in it",
}
SURVEY = {
    "kind": "a reading of the numbers: prediction (promotes a few tokens strongly), suppression (suppresses a few), entropy (writes where the vocabulary barely reads), partition (pushes one large set of tokens against another), unlabelled",
    "promotes, suppresses": "the tokens the answer makes likelier and less likely, by the weights",
    "cosine": "between question and answer: near −1 a neuron erases what it asks for",
    "vocab mean … kurtosis": "moments over all tokens of the cosine between the answer and the token; a normal spread has kurtosis 3",
    "null space": "the share of the answer's norm that the vocabulary barely reads",
}
