"""Roles of neurons, from weights alone: what a neuron does to what it reads.

    strengthens   cos(question, answer) at least the threshold: it writes more of what it asks for
    erases        at most minus the threshold: it takes away what it asks for
    translates    in between: it writes something else

A gated neuron whose question and answer are both negated is the same neuron, and its cosine is the
same; what its gate reads has a number of its own, cos(gate, answer).

>>> [name_role(cosine) for cosine in (0.7, -0.7, 0.1)]
['strengthens', 'erases', 'translates']
"""

import math

from ffnprobe.reading.kinds import Thresholds

ROLES = ("strengthens", "translates", "erases")


def name_role(reads_writes: float, thresholds: Thresholds | None = None) -> str:
    """Name the role of a neuron; a neuron without a question or an answer has none."""
    least = (Thresholds() if thresholds is None else thresholds).role
    if math.isnan(reads_writes):
        return ""
    if abs(reads_writes) < least:
        return "translates"
    return "strengthens" if reads_writes > 0 else "erases"
