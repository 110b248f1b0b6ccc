"""One prompt: what each layer saw and did, and the exact account of the word the model said."""
