"""GPT-2's forward pass over the parameters of a `GPT2LMHeadModel`, open for edits on the way."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

Edit = Callable[[int, Tensor], Tensor]  # takes the layer and its activations; returns others
LAYERS, WIDTH, HEADS, POSITIONS = 7, 192, 6, 64
NEURONS = 4 * WIDTH
MIDDLE = (1, 2, 3, 4)


def build(vocabulary: int, bos: int, used: Sequence[int]) -> GPT2LMHeadModel:
    """Build the untrained model; tokens that no text holds start at zero and so stay alike."""
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary, n_positions=POSITIONS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=bos, eos_token_id=bos,
        )
    )  # fmt: skip
    with torch.no_grad():
        is_used = torch.zeros(vocabulary, 1).index_fill(0, torch.tensor(used), 3.0)
        model.transformer.wte.weight.mul_(is_used)
    return model


def run(
    model: GPT2LMHeadModel,
    ids: Tensor,
    *,
    edit: Edit | None = None,
    inject: dict[int, Tensor] | None = None,
    start: int = 0,
    stop: int = LAYERS,
    stream: Tensor | None = None,
    watch: Callable[[int, Tensor], None] | None = None,
) -> Tensor:
    """Return the residual stream after layer `stop` − 1, row × position × width.

    `inject` is added after a layer; `watch` is told each layer's scores.
    """
    body = model.transformer
    if stream is None:
        stream = body.wte(ids) + body.wpe.weight[: ids.shape[1]]
    rows, length, width = stream.shape
    for layer in range(start, stop):
        block = body.h[layer]
        qkv = block.attn.c_attn(block.ln_1(stream))
        query, key, value = qkv.reshape(rows, length, 3, HEADS, width // HEADS).permute(
            2, 0, 3, 1, 4
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + block.attn.c_proj(mixed.transpose(1, 2).reshape(rows, length, width))
        scores = block.mlp.c_fc(block.ln_2(stream))
        if watch is not None:
            watch(layer, scores)
        activations = functional.gelu(scores, approximate="tanh")
        edited = activations if edit is None else edit(layer, activations)
        stream = stream + block.mlp.c_proj(edited)
        if inject is not None and layer in inject:
            stream = stream + inject[layer]
    return stream


def logits(model: GPT2LMHeadModel, stream: Tensor) -> Tensor:
    """Read the stream through the final norm and the unembedding."""
    return functional.linear(model.transformer.ln_f(stream), model.lm_head.weight)


def answer_directions(model: GPT2LMHeadModel, tokens: Tensor) -> Tensor:
    """Return unit vectors along which the stream says each token: γ ⊙ u, centred."""
    with torch.no_grad():
        rows = model.lm_head.weight[tokens] * model.transformer.ln_f.weight
        rows = rows - rows.mean(-1, keepdim=True)
        return functional.normalize(rows, dim=-1)
