"""Circuits measured on sentences with known answers: subject–verb agreement."""
