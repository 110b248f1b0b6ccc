"""Graphs from the words to the answer: neurons, what each added to the next, and tests of the whole."""
