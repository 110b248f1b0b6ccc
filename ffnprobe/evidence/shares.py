"""What the listed neurons amount to: their share of the answer's logit, and their removal at once."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ffnprobe.evidence.query import Query
from ffnprobe.names import NeuronId
from ffnprobe.tracing.pushes import Pushes

if TYPE_CHECKING:
    import pandas as pd

DRAWS = 20


def table_shares(pushes: Pushes, listed: "pd.DataFrame") -> "pd.DataFrame":
    """Table who carries the answer's logit; the rows add up to it."""
    import pandas as pd

    account = pushes.account
    mine = float(listed.push.sum())
    biases = float((account.attention_biases.sum() + account.mlp_biases.sum()).double())
    rows = {
        f"the {len(listed)} neurons listed": mine,
        "the other neurons": float(account.neurons.double().sum()) - mine,
        "attention": float(account.heads.double().sum()),
        "embedding and position": account.embedding + account.position,
        "biases": biases,
        **account.constants,
    }
    rows |= {"rounding": pushes.remainder, "the answer's logit": pushes.logit}
    return pd.DataFrame({"part": list(rows), "push": list(rows.values())})


def remove_together(query: Query, tables: Sequence["pd.DataFrame"]) -> "pd.DataFrame":
    """Table what removing a table's neurons at once does, compared with as many random ones."""
    import pandas as pd

    trace, token = query.trace, query.token
    c = trace.model.config
    generator = torch.Generator().manual_seed(query.seed + 1)
    rows = []
    for table in tables:
        position = int(table.position.iloc[0])
        graded = [NeuronId(*pair) for pair in zip(table.layer, table.neuron, strict=True)]
        draws = [
            [
                NeuronId(*divmod(int(n), c.d_mlp))
                for n in torch.randperm(c.neurons, generator=generator)[: len(graded)]
            ]
            for _ in range(DRAWS)
        ]
        groups = [graded, *draws]
        found = query.remove_groups(groups, position=position)
        logs = found.log_probability
        if logs is None:  # against a rival there is none: measure the answer by itself
            logs = query.remove_groups(groups, position=position, alone=True).log_probability
        assert logs is not None
        chance = float(trace.log_probabilities()[token])
        after = [math.exp(chance - nats) for nats in logs.tolist()]
        random = found.values[1:].double()
        for what, effect, probability in (
            (f"the {len(graded)} neurons listed", float(found.values[0]), after[0]),
            (f"{len(graded)} random neurons, mean of {DRAWS} draws", float(random.mean()), sum(after[1:]) / DRAWS),
            (f"{len(graded)} random neurons, worst of {DRAWS} draws", float(random.max()), min(after[1:])),
        ):  # fmt: skip
            rows.append(
                {
                    "removed": what, "position": position, "token": trace.tokens[position], "effect": effect,
                    "probability_before": math.exp(chance), "probability_after": probability,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)
