"""The model being probed: folded weights as questions and answers, each made when first asked for.

Layout: `[layer neuron d_model]` for both questions and answers. (In GPT-2's own Conv1D and in
TransformerLens these are columns of W_in and rows of W_out.)

    question     q_n = γ₂ ⊙ W_in[:, n], centred over d_model
    bias         c_n = b_in[n] + β₂ · W_in[:, n]
    answer       w_n = W_out[n, :]
    unembedding  u_t = γ_f ⊙ W_U[:, t], centred over d_model; bias d_t = β_f · W_U[:, t]

A gated neuron has a second question, its gate, folded alike. Where the norms are RMSNorms nothing is
centred over d_model and there is no β. Where an MLP writes through a norm of its own (Gemma) its gain
is in the answers, and the norm's scale, which differs from position to position, in the trace.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Protocol

import torch
from einops import rearrange, reduce
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ffnprobe.errors import ModelNotLoaded, OptionRefused
from ffnprobe.models import folding
from ffnprobe.models.checkpoint import fingerprint, identify, tell_apart
from ffnprobe.models.config import Config
from ffnprobe.models.families import Layout
from ffnprobe.models.folding import Attention, LayerWeights, Linear
from ffnprobe.models.sources import OBJECT, Source
from ffnprobe.models.vocab import Vocab
from ffnprobe.names import NeuronId, check_layer, expand, expand_layers
from ffnprobe.provenance import HOOKED, OWN, Provenance

MEANS_FILE = "means.safetensors"


class Reader(Protocol):
    """What takes neurons' sides through the layers between them and the words (`ffnprobe.reading.jacobian`)."""

    def carry(
        self, layer: int, rows: Float[Tensor, "row d_model"], *, by: str
    ) -> Float[Tensor, "row d_model"]:
        """Return a layer's answers as they reach the end, or its questions (gates) as the words meet them."""

    @property
    def plain(self) -> dict[str, str | int]:
        """Which lens it is, for the provenance; `from` is what it is found by again."""


@dataclass(frozen=True, eq=False)
class Model:
    """A pretrained model, its weights mapped as they are on disk and folded in fp32 on demand.

    >>> import ffnprobe as fp
    >>> model = fp.load("pocket")
    >>> list(model.questions.shape), list(model.unembedding.shape)
    ([7, 768, 192], [5022, 192])
    """

    name: str
    source: Source
    config: Config
    vocab: Vocab
    weights: Mapping[str, Tensor]
    fingerprint: str
    device: torch.device
    hooks: bool = False  # run by TransformerLens, not by our own forward pass
    lens: Reader | None = (
        None  # what token lists are read through; None: as if there were no layer between
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", MappingProxyType(dict(self.weights)))

    def __repr__(self) -> str:
        c = self.config
        return (
            f"Model({self.name}: {c.layers} layers × {c.d_mlp} neurons × {c.d_model}, "
            f"vocabulary {c.vocab}, {self.fingerprint[:8]})"
        )

    def card(self) -> str:
        """Write in Markdown what the model is; pocket has a card of its own behind it."""
        c = self.config
        gates, norm = "gated" if c.is_gated else "not gated", "RMSNorm" if c.is_rms else "LayerNorm"
        means = "not known, so removed means zero" if self.means is None else "known"
        lines = [
            f"# {self.name}",
            f"- family: {c.family}; {c.layers} layers of {c.d_mlp:,} neurons, L0N0 to L{c.layers - 1}N{c.d_mlp - 1}",
            f"- d_model {c.d_model}, {c.heads} heads, vocabulary {c.vocab:,}, {c.positions:,} positions",
            f"- {c.parameters():,} parameters; {gates}; {norm}",
            f"- source: {self.source}; weights {self.fingerprint}",
            f"- identity: {self.identity}",
            f"- activation means: {means}\n",
        ]
        if self.source.kind == "embedded":
            lines.append((self.source.folder() / "CARD.md").read_text(encoding="utf-8"))
        return "\n".join(lines)

    @property
    def layout(self) -> Layout:
        """The names this model's family gives its tensors."""
        return self.config.layout

    def raw(self, name: str) -> Tensor:
        """Return a weight as it is on disk, in fp32, on the model's device."""
        return self.weights[name].to(device=self.device, dtype=torch.float32)

    def is_unchanged(self) -> bool:
        """Hash the weights again and compare."""
        return fingerprint(self.weights) == self.fingerprint

    @property
    def bridge(self) -> Any:
        """TransformerLens's bridge of this model: `model.bridge.run_with_cache(ids)`.

        `trace.hooks` names its hooks. It has no tokenizer: give it token ids, `trace.ids`.
        """
        from ffnprobe.models.bridge import bridge_of

        self.check()
        return bridge_of(self)

    @property
    def location(self) -> str:
        """What another process loads this model from."""
        if self.source.is_in_memory:
            is_object = self.source.kind == OBJECT
            own = "save_pretrained(folder) of it and its tokenizer"
            raise ModelNotLoaded(
                f"{self.name} is an object in the memory of this process; another cannot load it.",
                remedy=f"{own if is_object else 'fp.export(edited, folder)'}, then fp.load(folder)",
            )
        return self.name if self.source.is_known_by(self.name) else self.source.where

    @cached_property
    def identity(self) -> str:
        """The weights' fingerprint, and hashes of the configuration and the vocabulary."""
        return identify(self.fingerprint, self.config, self.vocab)

    @property
    def run_by(self) -> str:
        """Who runs this model, in words."""
        return HOOKED if self.hooks else OWN

    def provenance(self, **fields: object) -> Provenance:
        """Start a result's provenance."""
        if self.lens is not None:
            fields["settings"] = {**fields.get("settings", {}), "lens": self.lens.plain}  # type: ignore[dict-item]
        return Provenance(self.name, self.source, self.fingerprint, self.identity, **fields)  # type: ignore[arg-type]

    def find_neuron(self, name: str | NeuronId) -> NeuronId:
        """Return one neuron by its name, or say which neurons the model has."""
        c = self.config
        return NeuronId.parse(str(name)).check(layers=c.layers, neurons=c.d_mlp, model=self.name)

    def find_neurons(self, names: str | Iterable[str | NeuronId]) -> list[NeuronId]:
        """List the neurons that names stand for (`L3N12`, `L3`, `L3N5-L3N9`), each once, in order.

        >>> import ffnprobe as fp
        >>> [str(name) for name in fp.load("pocket").find_neurons(["L3N8-9", "L0N1", "L3N9"])]
        ['L3N8', 'L3N9', 'L0N1']
        """
        c = self.config
        texts = [names] if isinstance(names, str) else [str(name) for name in names]
        own = partial(expand, layers=c.layers, neurons=c.d_mlp, model=self.name)
        return list(dict.fromkeys(chain.from_iterable(map(own, texts))))

    def find_layers(self, layers: str | Sequence[int] | None) -> list[int]:
        """List layers ("3-5", or numbers; None for all), each once and in order."""
        count = self.config.layers
        if layers is None:
            return list(range(count))
        if isinstance(layers, str):
            return expand_layers(layers, layers=count, model=self.name)
        if not len(layers):
            raise OptionRefused("no layer is named.", remedy=f"0 to {count - 1}")
        chosen = {check_layer(n, layers=count, named=f"L{n}", model=self.name) for n in layers}
        return sorted(chosen)

    @cached_property
    def means(self) -> Float[Tensor, "layer neuron"] | None:
        """The activation means that came with the model, read once; None if it has none.

        `means.safetensors` in the model's folder holds one tensor, `activations`, and in its metadata the
        `fingerprint` of the weights they were measured on, or the whole `identity` of the model. Pocket's
        are over all positions of its facts' sentences but BOS.
        """
        path = self.source.folder() / MEANS_FILE
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                means: Tensor = file.get_tensor("activations").float()
                metadata = file.metadata() or {}
        except (SafetensorError, OSError) as error:
            raise ModelNotLoaded(f"{path} cannot be read: {error}.") from None
        layers, neurons = self.config.layers, self.config.d_mlp
        if tuple(means.shape) != (layers, neurons) or not means.isfinite().all():
            raise ModelNotLoaded(f"{path} does not hold {layers} × {neurons} finite numbers.")
        weights = metadata.get("fingerprint", self.fingerprint)
        if weights != self.fingerprint:
            raise ModelNotLoaded(
                f"{path} was measured on other weights ({weights[:8]}, not {self.fingerprint[:8]})."
            )
        if other := tell_apart(metadata.get("identity", self.identity), self.identity):
            raise ModelNotLoaded(f"{path} was measured on a model with another {other}.")
        return means

    def linear(self, layer: int, part: str) -> Linear:
        """Return a matrix of a block, `[in out]` whatever the family keeps, and its bias if it has one."""
        name = self.layout.of(layer, part)
        weight, bias = self.raw(f"{name}.weight"), f"{name}.bias"
        if not self.layout.is_transposed:
            weight = rearrange(weight, "high wide -> wide high")
        return weight, self.raw(bias) if bias in self.weights else None

    def gain(self, norm: str) -> Float[Tensor, " wide"]:
        """Return a norm's gain, γ."""
        return self.raw(f"{norm}.weight") + self.config.gain_offset

    def shift(self, norm: str) -> Float[Tensor, " wide"] | None:
        """Return a norm's shift, β; an RMSNorm has none."""
        return None if self.config.is_rms else self.raw(f"{norm}.bias")

    def fold(
        self, layer: int, norm: str, part: str, rows: slice | list[int] = slice(None)
    ) -> tuple[Float[Tensor, "row d_model"], Float[Tensor, " row"]]:
        """Fold a norm of a block into a matrix that reads it, for some of its outputs or all."""
        weight, bias = self.linear(layer, part)
        name, bias = self.layout.of(layer, norm), None if bias is None else bias[rows]
        return folding.fold_reader(weight[:, rows], bias, self.gain(name), self.shift(name))

    def centre(self, rows: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Take from each row its mean over d_model, if the norms let none through."""
        if self.config.is_rms:
            return rows
        return rows - reduce(rows, "... d_model -> ... 1", "mean")

    def _fold_all(self, part: str, name: str) -> tuple[Tensor, Tensor]:
        c = self.config
        rows = torch.empty(c.layers, c.d_mlp, c.d_model, device=self.device)
        biases = torch.empty(c.layers, c.d_mlp, device=self.device)
        for layer in range(c.layers):
            rows[layer], biases[layer] = self.fold(layer, self.layout.mlp_norm, part)
        if not c.is_rms:
            folding.check_centred(rows, name=name)
        return rows, biases

    @cached_property
    def _questions(self) -> tuple[Tensor, Tensor]:
        return self._fold_all(self.layout.up, "questions")

    @cached_property
    def _gates(self) -> tuple[Tensor, Tensor]:
        return self._fold_all(str(self.layout.gate), "gates")

    @property
    def questions(self) -> Float[Tensor, "layer neuron d_model"]:
        """What each neuron asks of the normalised residual x̂."""
        return self._questions[0]

    @property
    def question_biases(self) -> Float[Tensor, "layer neuron"]:
        """Each neuron's score where x̂ is zero."""
        return self._questions[1]

    @property
    def gates(self) -> Float[Tensor, "layer neuron d_model"] | None:
        """What opens each neuron, if this model's neurons have gates."""
        return self._gates[0] if self.config.is_gated else None

    @property
    def gate_biases(self) -> Float[Tensor, "layer neuron"] | None:
        """Each gate's score where x̂ is zero."""
        return self._gates[1] if self.config.is_gated else None

    @cached_property
    def answers(self) -> Float[Tensor, "layer neuron d_model"]:
        """What each neuron adds to the residual stream, per unit of activation."""
        return torch.stack([self.answers_of(layer) for layer in range(self.config.layers)])

    @cached_property
    def blocks(self) -> tuple[LayerWeights, ...]:
        """Each layer's weights as they are run."""
        return tuple(folding.read_layer(self, layer) for layer in range(self.config.layers))

    @property
    def rows(self) -> tuple[Float[Tensor, "neuron d_model"], ...]:
        """Each layer's W_down: the answers before the gain of a norm an MLP writes through."""
        return tuple(block.down[0] for block in self.blocks)

    def answers_of(self, layer: int) -> Float[Tensor, "neuron d_model"]:
        """Return one layer's answers; without a copy if they are so on disk, in fp32."""
        rows, _ = self.linear(layer, self.layout.down)
        gain = self.mlp_post_gain(layer)
        return rows if gain is None else rows * gain

    def carry(
        self, layer: int, rows: Float[Tensor, "row d_model"], *, by: str
    ) -> Float[Tensor, "row d_model"]:
        """Take a layer's answers, questions or gates through the model's lens, if it has one."""
        return rows if self.lens is None else self.lens.carry(layer, rows, by=by)

    def mlp_post_gain(self, layer: int) -> Float[Tensor, " d_model"] | None:
        """Return the gain of the norm an MLP writes through, if it writes through one."""
        norm = self.layout.mlp_post_norm
        return self.gain(self.layout.of(layer, norm)) if norm else None

    @cached_property
    def answer_biases(self) -> Float[Tensor, "layer d_model"]:
        """What each MLP layer adds whatever its neurons do."""
        zeros = torch.zeros(self.config.d_model, device=self.device)
        biases = [self.linear(layer, self.layout.down)[1] for layer in range(self.config.layers)]
        return torch.stack([zeros if bias is None else bias for bias in biases])

    @cached_property
    def embedding(self) -> Float[Tensor, "vocab d_model"]:
        """The token embeddings, as they enter the stream."""
        rows, scale = self.raw(f"{self.layout.embedding}.weight"), self.config.embedding_scale
        return rows if scale == 1.0 else rows * scale

    @cached_property
    def position_embedding(self) -> Float[Tensor, "position d_model"] | None:
        """The position embeddings; None where positions are told to attention instead."""
        name = self.layout.positions
        return self.raw(f"{name}.weight")[self.config.position_offset :] if name else None

    @cached_property
    def head(self) -> Float[Tensor, "vocab d_model"]:
        """The unembedding as it is on disk, W_U, before folding."""
        name = self.layout.embedding if self.config.is_tied else self.layout.head
        return self.raw(f"{name}.weight")

    @cached_property
    def final_gain(self) -> Float[Tensor, " d_model"]:
        """The final norm's gain, γ_f."""
        return self.gain(self.layout.final_norm)

    @cached_property
    def final_shift(self) -> Float[Tensor, " d_model"] | None:
        """The final norm's shift, β_f; an RMSNorm has none."""
        return self.shift(self.layout.final_norm)

    @cached_property
    def _folded_head(self) -> tuple[Tensor, Tensor]:
        columns = rearrange(self.head, "vocab d_model -> d_model vocab")
        rows, bias = folding.fold_reader(columns, None, self.final_gain, self.final_shift)
        if not self.config.is_rms:
            folding.check_centred(rows, name="unembedding")
        return rows, bias

    @property
    def unembedding(self) -> Float[Tensor, "vocab d_model"]:
        """The direction that each token's logit reads, u_t: folded, centred over d_model."""
        return self._folded_head[0]

    @property
    def unembedding_bias(self) -> Float[Tensor, " vocab"]:
        """Each token's logit where the final x̂ is zero, d_t."""
        return self._folded_head[1]

    @cached_property
    def mean_unembedding(self) -> Float[Tensor, " d_model"]:
        """The mean of u_t over the vocabulary: what moves all logits alike."""
        return reduce(self.unembedding, "vocab d_model -> d_model", "mean")

    @cached_property
    def mean_logit(self) -> tuple[Float[Tensor, " d_model"], float]:
        """The mean of u_t and of d_t over the vocabulary, in double: the mean logit as it is read."""
        direction = self.unembedding.mean(0, dtype=torch.float64)
        return direction, float(self.unembedding_bias.mean(dtype=torch.float64))

    @cached_property
    def attention(self) -> tuple[Attention, ...]:
        """Every layer's values and outputs of heads (OV), the norm before them folded in."""
        return tuple(folding.fold_attention(self, layer) for layer in range(self.config.layers))

    @cached_property
    def rotary(self) -> tuple[tuple[Float[Tensor, " pair"], float], ...]:
        """Each layer's rotary frequencies and what their cosines are multiplied by; empty without any.

        They are known once our own step has been compared with TransformerLens.
        """
        from ffnprobe.models.forward import verify

        return verify(self)

    def check(self) -> None:
        """Raise if our own step does not run this model as Hugging Face and TransformerLens do."""
        _ = self.rotary  # made by the comparison


@dataclass(frozen=True, eq=False)
class Means:
    """Activation means over a corpus of one's own: the model they are of, and the corpus in words."""

    activations: Float[Tensor, "layer neuron"]
    identity: str
    corpus: str
