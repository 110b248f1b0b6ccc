"""How well three methods edit facts: alone, and one after another."""
