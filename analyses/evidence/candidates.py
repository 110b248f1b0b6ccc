"""One prompt explained twice, by proposed candidates and by removing every neuron: do they agree?"""

from typing import Any

import ffnprobe as fp


def compare_ways(
    model: fp.Model, prompt: str, answer: str | int | None, **options: Any
) -> dict[str, Any]:
    """Explain an answer in both ways; say what is the same, and how deep the proposals had to reach.

    `depth` is the worst rank, by push or by estimate (the better of both counts), of a neuron listed at
    the last position; `depth_of_a` that of a neuron with an A.
    """
    few = fp.explain(model, prompt, answer, **options)
    every = fp.explain(model, prompt, answer, exact=True, **options)
    listed, known = _list(every), _list(few)
    trace, token = every.trace, every.pushes.pieces[0].answer
    estimates = fp.estimate(trace, token, contrast=options.get("contrast")).values[:, -1]
    ranks = [_rank(values) for values in (estimates, fp.attribute(trace, token).values)]
    last = every.neurons[every.neurons.position == len(trace) - 1]
    depths = [min(int(rank[row.layer, row.neuron]) for rank in ranks) for row in last.itertuples()]
    coverage = few.coverage
    assert coverage is not None
    return {
        "prompt": prompt,
        "same_a": _only_a(listed) == _only_a(known),
        "same_list": set(listed) == set(known),
        "same_grades": listed == known,
        "a": len(_only_a(listed)),
        "depth": max(depths),
        "depth_of_a": max(
            (depth for depth, grade in zip(depths, last.grade, strict=True) if grade == "A"),
            default=0,
        ),
        "removed": coverage.removed,
        "looked_at": coverage.looked_at,
        "pearson": coverage.pearson,
        "spearman": coverage.spearman,
    }


def _list(explanation: fp.Explanation) -> dict[tuple[str, int], str]:
    rows = explanation.neurons
    return dict(zip(zip(rows.name, rows.position, strict=True), rows.grade, strict=True))


def _only_a(grades: dict[tuple[str, int], str]) -> set[tuple[str, int]]:
    return {one for one, grade in grades.items() if grade == "A"}


def _rank(values: Any) -> Any:
    """Rank every value, the largest first, counted from 1."""
    order = values.flatten().argsort(descending=True, stable=True)
    ranks = order.new_empty(len(order))
    ranks[order] = order.new_tensor(range(1, len(order) + 1))
    return ranks.reshape(values.shape)
