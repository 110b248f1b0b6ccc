"""Train one encoder, resumable: the same seed gives the same numbers, interrupted or not.

The order of the sentences depends on seed and epoch alone, so all encoders of a seed see the same
batches. After each epoch everything needed to resume (weights, optimiser, history) is written to the
checkpoint; a finished run is read back instead of trained. One thread: for matrices this
small it is the fastest, and its sums do not depend on the machine's cores.
"""

import io
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from analyses.encoders.encoder import Encoder, EncoderSettings
from analyses.encoders.wordpieces import Pieces
from analyses.lab.superposition import one_thread
from ffnprobe.errors import DataRefused
from ffnprobe.files import atomic_write
from ffnprobe.models.checkpoint import fingerprint


@dataclass
class History:
    """What was seen in training: loss and gradient norm of each step, loss and accuracy on dev."""

    losses: list[float] = field(default_factory=list)
    gradients: list[float] = field(default_factory=list)
    dev_losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)


def train_encoder(
    pieces: Pieces,
    variant: str,
    *,
    seed: int,
    settings: EncoderSettings,
    checkpoint: Path | None = None,
    on_epoch: Callable[[], None] = lambda: None,
) -> tuple[Encoder, History]:
    """Train an encoder and return it with its history; `on_epoch` is called after each epoch."""
    encoder = Encoder(settings, vocab=pieces.vocab, pad=pieces.pad, variant=variant, seed=seed)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=settings.rate, fused=True)
    history = History()
    about = _describe(pieces, variant, seed, settings)
    if checkpoint is not None and checkpoint.exists():
        history = _restore(checkpoint, about, encoder, optimiser)
    with one_thread():
        for epoch in range(settings.epochs):
            if epoch >= len(history.accuracies):
                _train_epoch(encoder, optimiser, pieces, seed, epoch, settings.batch, history)
                _measure(encoder, pieces, history)
                if checkpoint is not None:
                    _store(checkpoint, about, encoder, optimiser, history)
            on_epoch()
    return encoder.eval(), history


def order_sentences(count: int, *, seed: int, epoch: int) -> Tensor:
    """Return the order in which an epoch shows the sentences."""
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    return torch.randperm(count, generator=generator)


def _train_epoch(
    encoder: Encoder,
    optimiser: torch.optim.Optimizer,
    pieces: Pieces,
    seed: int,
    epoch: int,
    batch: int,
    history: History,
) -> None:
    ids, labels = pieces.train
    encoder.train()
    for chosen in torch.split(order_sentences(len(ids), seed=seed, epoch=epoch), batch):
        loss = nn.functional.cross_entropy(encoder(ids[chosen]), labels[chosen])
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        norms = [p.grad.norm() for p in encoder.parameters() if p.grad is not None]
        optimiser.step()
        history.losses.append(loss.item())
        history.gradients.append(torch.stack(norms).norm().item())


@torch.no_grad()
def _measure(encoder: Encoder, pieces: Pieces, history: History) -> None:
    ids, labels = pieces.dev
    encoder.eval()
    logits = torch.cat([encoder(part) for part in torch.split(ids, 256)])
    history.dev_losses.append(nn.functional.cross_entropy(logits, labels).item())
    history.accuracies.append((logits.argmax(-1) == labels).double().mean().item())


def _describe(pieces: Pieces, variant: str, seed: int, settings: EncoderSettings) -> str:
    data = {"train": pieces.train[0], "train labels": pieces.train[1], "dev": pieces.dev[0]}
    return json.dumps(
        {"variant": variant, "seed": seed, **asdict(settings), "data": fingerprint(data)}
    )


def _store(
    path: Path, about: str, encoder: Encoder, optimiser: torch.optim.Optimizer, history: History
) -> None:
    buffer = io.BytesIO()
    state = {"about": about, "encoder": encoder.state_dict(), "optimiser": optimiser.state_dict()}
    torch.save({**state, "history": asdict(history)}, buffer)
    atomic_write(path, buffer.getvalue())


def _restore(path: Path, about: str, encoder: Encoder, optimiser: torch.optim.Optimizer) -> History:
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
        is_ours = state["about"] == about
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, TypeError) as error:
        cause = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataRefused(
            f"{path} is not a checkpoint of an encoder ({cause}).", remedy="delete it"
        ) from None
    if not is_ours:
        raise DataRefused(
            f"{path} is of another run (other settings or sentences).", remedy="another folder"
        )
    encoder.load_state_dict(state["encoder"])
    optimiser.load_state_dict(state["optimiser"])
    return History(**state["history"])
