"""What the replay must equal: TransformerLens with a hook, and plain arithmetic in float64."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

import ffnprobe as fp
from ffnprobe.models.bridge import bridge_of
from ffnprobe.models.step import activate_neurons

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

    def weight(name: str) -> Tensor:
        return model.weights[name].double()

    def norm(x: Tensor, name: str) -> Tensor:
        gain, shift = weight(f"{name}.weight"), weight(f"{name}.bias")
        return torch.nn.functional.layer_norm(x, x.shape[-1:], gain, shift, model.config.eps)

    stream = weight("wte.weight")[ids] + weight("wpe.weight")[: len(ids)]
    kept: dict[str, list[Tensor]] = {"before_attention": [], "activations": []}
    for layer in range(model.config.layers):
        block = f"h.{layer}"
        kept["before_attention"].append(stream)
        seen = norm(stream, f"{block}.ln_1") @ weight(f"{block}.attn.c_attn.weight")
        read = (seen + weight(f"{block}.attn.c_attn.bias")).chunk(3, dim=-1)
        heads = [part.unflatten(-1, (model.config.heads, -1)).transpose(0, 1) for part in read]
        mixed = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        stream = stream + mixed.transpose(0, 1).flatten(1) @ weight(f"{block}.attn.c_proj.weight")
        stream = stream + weight(f"{block}.attn.c_proj.bias")
        scores = norm(stream, f"{block}.ln_2") @ weight(f"{block}.mlp.c_fc.weight")
        activations = activate_neurons(model, scores + weight(f"{block}.mlp.c_fc.bias"), None)
        activations = activations if change is None else change(layer, activations)
        kept["activations"].append(activations)
        stream = stream + activations @ weight(f"{block}.mlp.c_proj.weight")
        stream = stream + weight(f"{block}.mlp.c_proj.bias")
    seen = torch.nn.functional.layer_norm(stream, stream.shape[-1:], eps=model.config.eps)
    logits = seen @ model.unembedding.double().T + model.unembedding_bias.double()
    return {"final": stream, "logits": logits} | {n: torch.stack(t) for n, t in kept.items()}


def in_float64(trace: fp.Trace) -> fp.Trace:
    """Return the same trace as float64 arithmetic would have it."""
    return replace(trace, **direct(trace.model, list(trace.ids)))
