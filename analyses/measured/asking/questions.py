"""Twenty questions with known answers: from the table of facts, and from identities that must hold."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ffnprobe.models import pocket

Answer = dict[str, Any]
RELATIONS = 8


@dataclass(frozen=True)
class Question:
    """What is asked in words, the call, the known answer, and how it is read out of the reply."""

    words: str
    tool: str
    arguments: dict[str, Any]
    known: object
    read: Callable[[Answer], object]
    table: str | None = None  # which of the reply's tables is read, if not the first


def column(answer: Answer, name: str) -> list[Any]:
    """Take a column out of a reply."""
    return [row[answer["columns"].index(name)] for row in answer["rows"]]


def pick_facts() -> list[tuple[str, str, str]]:
    """Pick one fact of each of the first relations: prompt, answer, relation."""
    first: dict[str, tuple[str, str, str]] = {}
    for prompt in pocket.prompts():
        if not prompt.is_held_out:
            fact = prompt.fact
            first.setdefault(fact.relation, (prompt.text, fact.answer, fact.relation))
    return list(islice(first.values(), RELATIONS))


def shown(answer: str) -> str:
    """Write an answer as tables show it."""
    return answer.replace(" ", "␣")


def list_questions(neurons: int, layers: int) -> Iterator[Question]:
    """List the twenty questions, for a model of so many neurons and layers."""
    facts = pick_facts()
    (prompt, answer, _), (other, rival, _) = facts[0], facts[1]
    last = f"L{layers - 1}"
    for text, said, relation in facts:
        yield Question(
            f"{relation}: {text} …?", "run", {"prompt": text}, shown(said),
            lambda reply: column(reply, "token")[0],
        )  # fmt: skip
    true = [{"prompt": p, "answer": a, "relation": r} for p, a, r in facts]
    moved = [{**fact, "answer": facts[n - 1][1]} for n, fact in enumerate(true)]
    yield Question("Which of these statements does it know?", "score", {"facts": true + moved},
                   [True] * len(true) + [False] * len(moved), lambda r: column(r, "known"))  # fmt: skip
    yield Question("What share of each relation is known?", "score",
                   {"facts": true + moved, "by_relation": True}, {0.5},
                   lambda r: set(column(r, "share_known")))  # fmt: skip
    asked = {"prompt": prompt, "answer": answer}
    yield Question("At which rank is the answer that is explained?", "explain", asked, "rank 1 of",
                   lambda r: "rank 1 of" if ", rank 1 of " in r["notes"][0] else r["notes"][0])  # fmt: skip
    yield Question("Which token is explained?", "explain", asked, shown(answer),
                   lambda r: r["provenance"]["answer"])  # fmt: skip
    yield Question("Do the parts add up to the logit?", "attribute", {**asked, "rows": 200}, 0.0,
                   lambda r: round(sum(column(r, "push")) - _logit(r), 2) + 0.0, "parts")  # fmt: skip
    yield Question("What carried attention's push: do the positions add up to it?", "paths",
                   {**asked, "rows": 200}, 0.0,
                   lambda r: round(sum(column(r, "push")) - _logit(r), 2) + 0.0, "positions")  # fmt: skip
    yield Question("Does the neuron most about the answer promote it?", "search",
                   {"tokens": [answer], "top": 1}, True,
                   lambda r: shown(answer) in column(r, "promotes")[0].split(" "))  # fmt: skip
    yield Question("Which neurons are read when a layer is named?", "read",
                   {"neurons": [last], "rows": 1}, neurons // layers, lambda r: r["rows_in_all"])  # fmt: skip
    yield Question("Does scaling by 1 change a prediction?", "steer",
                   {"prompt": prompt, "scale": {"L0": 1.0}}, [True] * 10,
                   lambda r: [abs(a - b) < 1e-3 for a, b in zip(column(r, "logit_before"),
                              column(r, "logit_after"), strict=True)])  # fmt: skip
    yield Question("Is the answer still likeliest without any MLP?", "steer",
                   {"prompt": prompt, "scale": {f"L{n}": 0.0 for n in range(layers)}}, False,
                   lambda r: max(zip(column(r, "logit_after"), column(r, "token"), strict=True))[1]
                   == shown(answer))  # fmt: skip
    yield Question("Which answers are compared between two facts?", "compare",
                   {"prompt": prompt, "other": other}, (shown(answer), shown(rival)),
                   lambda r: (r["provenance"]["answer"], r["provenance"]["versus"]))  # fmt: skip
    yield Question("How many neurons have a twin in the model itself?", "match",
                   {"other": "pocket"}, neurons, lambda r: sum(column(r, "twins")), "layers")  # fmt: skip


def _logit(reply: Answer) -> float:
    """Read the logit in a reply's title."""
    return float(reply["title"].partition(" logits")[0].rpartition(": ")[2])
