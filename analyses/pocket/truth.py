"""Where each fact sits, by measurement: the MLP and the position whose removal costs it most."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor
from transformers import GPT2LMHeadModel

from analyses.pocket.lesson import Homes
from analyses.pocket.measures import Asked, Place, remove_layers, says
from analyses.pocket.network import LAYERS, MIDDLE, logits, run
from analyses.pocket.rows import Reader
from ffnprobe.names import NeuronId

COLUMNS = (
    "relation", "subject", "answer", "stage", "is_recalled", "layer", "offset", "effect",
    "is_lost", "is_lost_at_subject", "is_lost_without_first", "is_lost_without_middle", "home",
    "is_lost_without_home", "layers",
)  # fmt: skip


def locate(
    model: GPT2LMHeadModel,
    reader: Reader,
    means: Tensor,
    homes: Homes,
    asked: Sequence[Asked],
    stages: Sequence[str],
) -> Iterator[dict[str, object]]:
    """Yield a row for each fact, asked in its first template.

    stage                 the stage after which the answer first came first
    layer, offset         the MLP, and its position counted from the subject's last token, whose
                          removal costs the answer most (in `effect` logits)
    is_lost               without that MLP there the answer is not the likeliest token
    is_lost_at_subject    the same without the MLPs of all layers at the subject's last token
    is_lost_without_first, is_lost_without_middle
                          the same without the MLP of layer 0, or without the middle MLPs, there
    home                  the neuron drawn by lot for the subject before training
    is_lost_without_home  the same without that neuron at the subject's last token
    layers                each layer's MLP at the subject's last token: what the answer loses
    """
    for one, stage in track(list(zip(asked, stages, strict=True)), description="truth"):
        costs = remove_layers(model, one, means)[:, 1:]
        layer, place = divmod(int(costs.argmax()), costs.shape[1])
        number = reader.number[one.fact.subject]
        home = NeuronId(MIDDLE[int(homes.layers[number])], int(homes.neurons[number]))
        groups = [{(each, one.last) for each in layers} for layers in (range(LAYERS), (0,), MIDDLE)]
        is_recalled, *said = _say(model, one, means, [set(), {(layer, place + 1)}, *groups])
        said += says(model, one, means, [[Place(one.last, home.layer, home.neuron)]])
        lost = [int(is_recalled and not is_said) for is_said in said]
        yield {
            "relation": one.fact.relation,
            "subject": one.fact.subject,
            "answer": one.fact.answer[1:],
            "stage": stage if is_recalled else "",
            "is_recalled": int(is_recalled),
            "layer": layer,
            "offset": place + 1 - one.last,
            "effect": f"{float(costs[layer, place]):.2f}",
            "is_lost": lost[0],
            "is_lost_at_subject": lost[1],
            "is_lost_without_first": lost[2],
            "is_lost_without_middle": lost[3],
            "home": str(home),
            "is_lost_without_home": lost[4],
            "layers": " ".join(f"{value:.2f}" for value in costs[:, one.last - 1].tolist()),
        }


@torch.no_grad()
def _say(
    model: GPT2LMHeadModel, one: Asked, means: Tensor, without: Sequence[set[tuple[int, int]]]
) -> list[bool]:
    """Say whether the answer comes first without the MLPs at (layer, position)."""

    def edit(layer: int, activations: Tensor) -> Tensor:
        for row, places in enumerate(without):
            for removed, position in places:
                if removed == layer:
                    activations[row, position] = means[layer]
        return activations

    ids = torch.tensor([one.ids]).expand(len(without), -1)
    said = logits(model, run(model, ids, edit=edit)[:, -1]).argmax(-1)
    return [token == one.answer for token in said.tolist()]


def write_truth(path: Path, rows: list[dict[str, object]]) -> None:
    """Write the table beside the weights."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
