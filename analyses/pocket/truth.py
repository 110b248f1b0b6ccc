"""Where each fact sits, by measurement: the MLP and the position whose removal costs it most."""

import csv
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor
from transformers import GPT2LMHeadModel

from ffnprobe.models import pocket
from pocket.measures import Asked, ask, remove_layers
from pocket.network import LAYERS, logits, run
from pocket.rows import Reader

COLUMNS = (
    "relation", "subject", "answer", "stage", "is_recalled", "layer", "offset", "effect",
    "is_lost", "is_lost_at_subject", "layers",
)  # fmt: skip
STAGE = "memory"


def locate(model: GPT2LMHeadModel, reader: Reader, means: Tensor) -> Iterator[dict[str, object]]:
    """Yield a row for each fact, in its first template.

    stage               the stage that first saw the fact
    layer, offset       the MLP, and its position counted from the subject's last token, whose
                        removal costs the answer most (in `effect` logits)
    is_lost             without that MLP there the answer is not the likeliest token
    is_lost_at_subject  the same without the MLPs of all layers at the subject's last token
    layers              each layer's MLP at the subject's last token: what the answer loses
    """
    for fact in track(pocket.facts(), description="truth"):
        one = ask(reader, fact, pocket.templates()[fact.relation][0])
        costs = remove_layers(model, one, means)[:, 1:]
        layer, place = divmod(int(costs.argmax()), costs.shape[1])
        without = [
            set[tuple[int, int]](),
            {(layer, place + 1)},
            {(n, one.last) for n in range(LAYERS)},
        ]
        said = _say(model, one, means, without)
        yield {
            "relation": fact.relation,
            "subject": fact.subject,
            "answer": fact.answer[1:],
            "stage": STAGE,
            "is_recalled": int(said[0]),
            "layer": layer,
            "offset": place + 1 - one.last,
            "effect": f"{float(costs[layer, place]):.2f}",
            "is_lost": int(said[0] and not said[1]),
            "is_lost_at_subject": int(said[0] and not said[2]),
            "layers": " ".join(f"{value:.2f}" for value in costs[:, one.last - 1].tolist()),
        }


@torch.no_grad()
def _say(
    model: GPT2LMHeadModel, one: Asked, means: Tensor, without: list[set[tuple[int, int]]]
) -> list[bool]:
    """Say whether the answer still comes first without the MLPs at (layer, position)."""

    def edit(layer: int, activations: Tensor) -> Tensor:
        for row, places in enumerate(without):
            for removed, position in places:
                if removed == layer:
                    activations[row, position] = means[layer]
        return activations

    ids = torch.tensor([one.ids]).expand(len(without), -1)
    said = logits(model, run(model, ids, edit=edit)[:, -1]).argmax(-1)
    return [int(token) == one.answer for token in said.tolist()]


def write_truth(path: Path, rows: list[dict[str, object]]) -> None:
    """Write the table beside the weights."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
