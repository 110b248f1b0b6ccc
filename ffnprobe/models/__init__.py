"""What is probed: a GPT-2 loaded by name or from a folder, its LayerNorms folded, its vocabulary."""
