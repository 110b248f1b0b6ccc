"""How the embedded model is made: tokenizer, rows, network, stages, measures, card."""
