"""Weights alone: what each neuron asks and answers, read through the embedding and unembedding."""
