"""What the replay must equal: TransformerLens with a hook, and plain arithmetic in float64."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

import ffnprobe as fp
from ffnprobe.models.bridge import bridge_of
from ffnprobe.models.step import open_up

MEANS_SEED = 7


def some_means(model: fp.Model) -> Tensor:
    """Stand-ins for activation means, one a neuron."""
    shape = (model.config.layers, model.config.d_mlp)
    return torch.randn(shape, generator=torch.Generator().manual_seed(MEANS_SEED)) * 0.2


def centre(logits: Tensor) -> Tensor:
    """Return logits above their mean over the vocabulary, as effects read them by default."""
    return logits.double() - logits.double().mean(-1, keepdim=True)


def hooked(
    model: fp.Model, ids: list[int], edits: dict[int, Callable[[Tensor], None]], rows: int = 1
) -> Tensor:
    """Run TransformerLens on so many copies of a prompt, each layer's activations edited in place."""

    def hook(edit: Callable[[Tensor], None]) -> Callable[..., Tensor]:
        def change(tensor: Tensor, hook: object) -> Tensor:
            tensor = tensor.clone()
            edit(tensor)
            return tensor

        return change

    hooks = [(f"blocks.{layer}.mlp.hook_post", hook(edit)) for layer, edit in edits.items()]
    with torch.no_grad():
        return bridge_of(model).run_with_hooks(torch.tensor([ids] * rows), fwd_hooks=hooks)


def removed(
    model: fp.Model,
    ids: list[int],
    layer: int,
    neurons: list[int],
    positions: list[int],
    values: Tensor,
) -> Tensor:
    """Return the logits of one hooked run for each neuron, that neuron alone given its value."""

    def edit(activations: Tensor) -> None:
        for row, neuron in enumerate(neurons):
            activations[row, positions, neuron] = values[layer, neuron]

    return hooked(model, ids, {layer: edit}, rows=len(neurons))


def direct(
    model: fp.Model, ids: list[int], change: Callable[[int, Tensor], Tensor] | None = None
) -> dict[str, Tensor]:
    """Run a prompt whole, in float64, with no shortcut; keep every layer's stream and activations."""

    def sixty_four(t: Tensor) -> Tensor:
        return t.double()

    norm = lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:], eps=model.config.eps)  # noqa: E731
    stream = sixty_four(model.embedding[ids]) + sixty_four(model.position_embedding[: len(ids)])
    kept: dict[str, list[Tensor]] = {"before_attention": [], "activations": []}
    for layer, attention in enumerate(model.attention):
        kept["before_attention"].append(stream)
        read = [
            torch.einsum("pd,hed->hpe", norm(stream), sixty_four(weight))
            + sixty_four(bias)[:, None]
            for weight, bias in (
                (attention.query, attention.query_bias),
                (attention.key, attention.key_bias),
                (attention.value, attention.value_bias),
            )
        ]
        mixed = torch.nn.functional.scaled_dot_product_attention(
            *read, is_causal=True, scale=attention.scale
        )
        stream = stream + torch.einsum("hpe,hed->pd", mixed, sixty_four(attention.out))
        stream = stream + sixty_four(attention.out_bias)
        scores = norm(stream) @ sixty_four(model.questions[layer]).T
        activations = open_up(model, scores + sixty_four(model.question_biases[layer]), None)
        activations = activations if change is None else change(layer, activations)
        kept["activations"].append(activations)
        stream = stream + activations @ sixty_four(model.answers[layer])
        stream = stream + sixty_four(model.answer_biases[layer])
    logits = norm(stream) @ sixty_four(model.unembedding).T + sixty_four(model.unembedding_bias)
    return {"final": stream, "logits": logits} | {n: torch.stack(t) for n, t in kept.items()}


def in_float64(trace: fp.Trace) -> fp.Trace:
    """Return the same trace as float64 arithmetic would have it."""
    return replace(trace, **direct(trace.model, list(trace.ids)))
