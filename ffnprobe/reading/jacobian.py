"""The Jacobian lens: answers read after the layers behind them, questions before those in front of them.

Read through the unembedding alone, an answer counts as if no layer came after it; through the embeddings, a
question as if none came before. The lens puts the mean effect of the layers between in their place:

    J_l = mean over passages and positions t of Σ_(t' ≥ t) ∂h(t') / ∂h_l(t)      an answer w of layer l is read as J_l w
    K_l = mean over passages and positions t' of Σ_(t ≤ t') ∂x̂_l(t') / ∂e(t)     a question q of layer l as q K_l

h_l is the stream after layer l, h the last of them, x̂_l what the questions of layer l are put to, e the token
embeddings. J_l w is projected as an answer is, so J = I gives the logit lens; q K_l is projected on the
embeddings, and its tokens are the words that open the neuron, said here or before. Averages leave out the
first positions of a passage (attention sinks) and its last, as published lenses do.

`JacobianLens` holds both for every layer, fitted by `fit_lens` or read from a published file, which has no K.
`OnDemand` takes the neurons asked for through a few passages, when it is asked: the same numbers.

Limits: first order, and a mean over passages, not this prompt; what a neuron does on a prompt is `explain`'s
and `circuit`'s to say.

>>> import ffnprobe as fp
>>> model = fp.use_lens(fp.load("pocket"), "on-demand")
>>> fp.read(model, "L2N225").answer.promotes(1).token.tolist()
['␣basketball']
"""

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from einops import einsum, reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import verb
from ffnprobe.errors import DataRefused, ModelNotLoaded, OptionRefused
from ffnprobe.files import check_regular, quote
from ffnprobe.models import pocket
from ffnprobe.models.bridge import find_published
from ffnprobe.models.checkpoint import tell_apart
from ffnprobe.models.forward import embed
from ffnprobe.models.model import Model
from ffnprobe.models.sources import fetch_file
from ffnprobe.models.step import normalise, step
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result
from ffnprobe.store import Part, open_store, read_part

if TYPE_CHECKING:
    import pandas as pd

ON_DEMAND, NO_LENS, OWN = "on-demand", "none", "own"
# Pocket's own, of `analyses/pocket/pack_lens.py`.
PACKED = pocket.FOLDER / "lens.safetensors"
LENS, PART = "lens", "jacobians"
# Left out of averages: attention sinks stand at the first positions.
SKIPPED = 16
# So many products go through the layers at once; on demand so many neurons are read at most, over so many passages.
AT_ONCE, MOST, READ = 32, 256, 16
# Prose for reading on demand; any would do. Pocket knows no words but those of its facts: every so many of them.
POCKET_STEP = 60
PASSAGES = (
    "The ferry left the harbour a little after seven, and by the time the sun had cleared the hills most of the "
    "passengers were asleep. A teacher from the north explained to her students how the lighthouse had been built, "
    "who had paid for it, and why it was moved twice before the war.",
    "Prices rose again in March, although the bank had promised that they would not. Two of its directors resigned; "
    "the third gave an interview in which he blamed the weather, the price of oil, a strike of railway workers and, "
    "after a pause, himself. Nobody knew what would happen next.",
)  # fmt: skip


def count_positions(length: int, skip: int) -> list[int]:
    """List the positions of a passage that are averaged over: not the first, nor the last."""
    return list(range(skip, length - 1))


def place_rows(
    rows: Float[Tensor, "row d_model"], length: int, counted: list[int]
) -> Float[Tensor, "row 1 pos d_model"]:
    """Put each row at every position counted of an empty stream of its own."""
    streams = torch.zeros(len(rows), 1, length, rows.shape[-1], device=rows.device)
    streams[:, 0, counted] = rows[:, None]
    return streams


def run_layers(
    model: Model, stream: Tensor, layers: range, hook: Mapping[str, Any] | None = None
) -> Tensor:
    """Take a stream through layers, with gradients where they are asked for."""
    at = torch.arange(stream.shape[1], device=stream.device)[None]
    for layer in layers:
        (stream,) = step(model, layer, [stream], [at], hooks=[hook] if hook else None)
    return stream


def push_rows(
    function: Callable[[Tensor], Tensor], at: Tensor, rows: Float[Tensor, "row 1 pos d_model"]
) -> Tensor:
    """Return how each row, added at a point, moves what a function gives, to first order."""
    return torch.func.vmap(lambda row: torch.func.jvp(function, (at,), (row,))[1])(rows)  # type: ignore[no-any-return]


def pull_rows(
    ends: Tensor, starts: Sequence[Tensor], rows: Float[Tensor, "row 1 pos d_model"]
) -> tuple[Tensor, ...]:
    """Return the gradients of each row's product with the ends; the ends can be asked again."""
    return torch.autograd.grad(ends, starts, rows, retain_graph=True, is_grads_batched=True)


@dataclass(frozen=True, eq=False)
class OnDemand:
    """A lens that is not fitted: rows are taken through a few passages when they are asked for."""

    model: Model
    passages: tuple[tuple[int, ...], ...]
    _known: dict[tuple[str, int, bytes], Tensor] = field(default_factory=dict)

    @property
    def plain(self) -> dict[str, str | int]:
        """Which lens it is."""
        return {"from": ON_DEMAND, "passages": len(self.passages)}

    @torch.no_grad()
    def carry(
        self, layer: int, rows: Float[Tensor, "row d_model"], *, by: str
    ) -> Float[Tensor, "row d_model"]:
        """Take a layer's answers on to the end, or its questions back to the words; each row once."""
        if len(rows) > MOST:
            raise OptionRefused(
                f"{len(rows):,} neurons are too many to read through the layers on demand.",
                remedy=f"at most {MOST} neurons, or a lens that is fitted once (fit_lens, fit-lens)",
            )
        self.model.check()
        side = "answer" if by == "answer" else "question"
        keys = [(side, layer, row.cpu().numpy().tobytes()) for row in rows]
        new = [n for n, key in enumerate(keys) if key not in self._known]
        if new:
            take = self._push_answers if side == "answer" else self._pull_questions
            parts = [take(layer, rows[new], ids) for ids in self.passages]
            means = torch.stack(parts).mean(dim=0)
            self._known.update(zip([keys[n] for n in new], means, strict=True))
        return torch.stack([self._known[key] for key in keys])

    @cached_property
    def _clean(self) -> dict[Sequence[int], list[Tensor]]:
        """Each passage's stream after every layer."""
        clean: dict[Sequence[int], list[Tensor]] = {}
        for ids in self.passages:
            stream, streams = embed(self.model, torch.tensor([ids])), list[Tensor]()
            for layer in range(self.model.config.layers):
                stream = run_layers(self.model, stream, range(layer, layer + 1))
                streams.append(stream)
            clean[ids] = streams
        return clean

    def _count(self, ids: Sequence[int]) -> list[int]:
        return count_positions(len(ids), min(SKIPPED, len(ids) // 2))

    def _push_answers(self, layer: int, rows: Tensor, ids: Sequence[int]) -> Tensor:
        """Add answers after their layer at every position counted, and add up how the end moves."""
        model, counted, layers = self.model, self._count(ids), self.model.config.layers
        stream = self._clean[ids][layer]
        finish = partial(run_layers, model, layers=range(layer + 1, layers))
        moved = [
            push_rows(finish, stream, place_rows(part, len(ids), counted))
            for part in torch.split(rows, AT_ONCE)
        ]
        return reduce(torch.cat(moved)[:, 0, counted], "row pos d_model -> row d_model", "mean")

    def _pull_questions(self, layer: int, rows: Tensor, ids: Sequence[int]) -> Tensor:
        """Follow the scores of questions at every position counted back to the embeddings."""
        model, counted, seen = self.model, self._count(ids), list[Tensor]()
        hook = {"before_mlp": lambda stream: seen.append(normalise(model, stream))}
        with torch.enable_grad():
            embedded = embed(model, torch.tensor([ids])).requires_grad_()
            run_layers(
                model, run_layers(model, embedded, range(layer)), range(layer, layer + 1), hook
            )
            slopes = [
                pull_rows(seen[0], [embedded], place_rows(part, len(ids), counted))[0]
                for part in torch.split(rows, AT_ONCE)
            ]
        return reduce(torch.cat(slopes)[:, 0, counted], "row pos d_model -> row d_model", "mean")


@dataclass(frozen=True, eq=False, repr=False)
class JacobianLens(Result):
    """The mean Jacobians of every layer, `[d_model d_model]`: to the end (`answers`), from the words (`questions`).

    The last layer needs none: nothing comes after it. A published lens has no `questions`.

    >>> import ffnprobe as fp
    >>> lens = fp.fit_lens(fp.load("pocket"), {"one": "Tiger Woods plays golf . " * 3}, skip=1)
    >>> list(lens.answers), lens.questions[0].shape
    ([0, 1, 2, 3, 4, 5], torch.Size([192, 192]))
    """

    answers: Mapping[int, Float[Tensor, "d_model d_model2"]]
    questions: Mapping[int, Float[Tensor, "d_model d_model2"]]
    passages: int
    provenance: Provenance
    where: str = ""  # what `use_lens` finds it by again

    @property
    def plain(self) -> dict[str, str | int]:
        """Which lens it is."""
        return {"from": self.where, "passages": self.passages}

    @property
    def title(self) -> str:
        """Name the model, and say over how much the means are."""
        plural = "s" * (self.passages != 1)
        return f"Jacobian lens of {self.provenance.model} over {self.passages:,} passage{plural}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return (
            "answer_growth: how much longer the layers behind make a random direction, on average; kept: its cosine "
            "with what it was (1: the logit lens); question_growth: the same for the layers before"
        )

    @property
    def table(self) -> "pd.DataFrame":
        """Each layer: how far its lens is from the identity."""
        import pandas as pd

        rows = []
        for layer in sorted({*self.answers, *self.questions}):
            size, trace, asked = 1.0, 1.0, None
            if layer in self.answers:
                matrix = self.answers[layer]
                size = float(torch.linalg.matrix_norm(matrix)) / len(matrix) ** 0.5
                trace = float(matrix.trace()) / len(matrix)
            if layer in self.questions:
                matrix = self.questions[layer]
                asked = float(torch.linalg.matrix_norm(matrix)) / len(matrix) ** 0.5
            rows.append((layer, size, trace / size, asked))
        columns = ["layer", "answer_growth", "kept", "question_growth"]
        return self.provenance.note(pd.DataFrame(rows, columns=columns))

    def carry(
        self, layer: int, rows: Float[Tensor, "row d_model"], *, by: str
    ) -> Float[Tensor, "row d_model"]:
        """Take a layer's answers on to the end, or its questions back to the words."""
        if by == "answer":
            matrix, pattern = self.answers.get(layer), "row d_model, end d_model -> row end"
        else:
            matrix, pattern = self.questions.get(layer), "row d_model, d_model word -> row word"
        return rows if matrix is None else einsum(rows, matrix.to(rows), pattern)

    def check(self, model: Model) -> "JacobianLens":
        """Return this lens if it is of this model, or refuse to read another through it."""
        layers, wide = model.config.layers, model.config.d_model
        other = tell_apart(self.provenance.identity or model.identity, model.identity)
        shapes = {tuple(each.shape) for each in (*self.answers.values(), *self.questions.values())}
        if other or shapes != {(wide, wide)} or set(self.answers) != set(range(layers - 1)):
            why = f"another {other}" if other else "other layers"
            raise DataRefused(
                f"the lens is of a model with {why} ({self.provenance.model}), not of {model.name}.",
                remedy=f"fit_lens({model.name}, texts)",
            )
        if not all(bool(each.isfinite().all()) for each in self.answers.values()):
            raise DataRefused("the lens holds numbers that are not finite.")
        return self

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Write the lens in the format of published ones (`.pt`); the questions' side is under `K`."""
        from ffnprobe.files import atomic_write

        halves = {name: {layer: each.half() for layer, each in side.items()}
                  for name, side in (("J", self.answers), ("K", self.questions))}  # fmt: skip
        payload = {
            **halves, "n_prompts": self.passages, "source_layers": sorted(self.answers),
            "d_model": len(next(iter(self.answers.values()))),
            "metadata": {"ffnprobe": str(self.provenance.as_dict())},
        }  # fmt: skip
        import io

        buffer = io.BytesIO()
        torch.save(payload, buffer)
        atomic_write(Path(path), buffer.getvalue())


@verb
def use_lens(model: Model, lens: str | os.PathLike[str] | JacobianLens | None) -> Model:
    """Return the model with its token lists read through a Jacobian lens; pushes and effects do not change.

    A lens is what `fit_lens` returned or the folder it kept, a published `.pt` file or its name on the hub
    ("gpt2-small", "google/gemma-3-270m"), "own" (pocket's, in the package), or "on-demand", which needs no fit and takes the neurons asked for through the layers when they
    are read. None and "none" read through the unembedding and the embeddings alone.

    >>> import ffnprobe as fp
    >>> model = fp.use_lens(fp.load("pocket"), "on-demand")
    >>> fp.read(model, "L3N361").provenance.settings["lens"]
    {'from': 'on-demand', 'passages': 15}
    """
    found: JacobianLens | OnDemand | None
    changed = copy(model)
    if lens is None or lens == NO_LENS:
        found = None
    elif isinstance(lens, JacobianLens):
        found = lens.check(model)
    elif lens == OWN:
        found = replace(_open_own(model).check(model), where=OWN)
    elif lens == ON_DEMAND:
        found = OnDemand(changed, tuple(_cut_passages(model)))
    else:
        found = replace(open_lens(Path(lens), model).check(model), where=os.fspath(lens))
    vars(changed)["lens"] = found
    return changed


def own_texts(model: Model) -> Sequence[str]:
    """Return texts that a model knows how to read, where none are given."""
    if model.source.kind != "embedded":
        return PASSAGES
    prompts = islice(pocket.prompts(), 0, None, POCKET_STEP)
    return [f"{prompt.text}{prompt.fact.answer}." for prompt in prompts]


def _cut_passages(model: Model) -> Iterator[tuple[int, ...]]:
    begin = [model.vocab.bos] if model.vocab.bos is not None and model.vocab.puts_bos(None) else []
    texts = own_texts(model)
    for text in texts[:: -(-len(texts) // READ)]:
        yield tuple([*begin, *model.vocab.ids(text)][: model.config.positions])


def open_lens(path: Path, model: Model) -> JacobianLens:
    """Read a lens from the folder of a fit, or from a published file."""
    if path.is_dir():
        store = open_store(path, LENS, remedy=f"ffnprobe fit-lens … --store {quote(path)}")
        part = store.read(PART)
        if part is None:
            raise DataRefused(f"the {LENS} in {path} has not begun.", remedy="the same fit again")
        return decode_lens(part)
    if not os.path.exists(path):
        if (published := find_published(path.as_posix())) is not None:
            try:
                return _read_published(fetch_file(*published), model)
            except ModelNotLoaded as error:
                raise DataRefused(error.what, remedy=f"a .pt file, or {ON_DEMAND}") from None
        raise DataRefused(
            f"there is no lens {path}.", remedy=f"{ON_DEMAND}, or a folder of fit-lens"
        )
    check_regular(path)
    return _read_published(path, model)


def _open_own(model: Model) -> JacobianLens:
    """Open the lens in the package, if the model is pocket."""
    if model.source.kind != "embedded":
        raise DataRefused(
            f"{model.name} comes without a lens.", remedy=f"{ON_DEMAND}, or a folder of fit-lens"
        )
    return decode_lens(read_part(PACKED))


def encode_lens(lens: JacobianLens) -> Part:
    """Make a part of a lens, its means in half precision."""
    said = {"passages": lens.passages, "provenance": lens.provenance.as_dict(), "of": 1}
    sides = (("J", lens.answers), ("K", lens.questions))
    return Part(said, {name: torch.stack([*side.values()]).half() for name, side in sides})


def decode_lens(part: Part) -> JacobianLens:
    """Make a lens of a part: of sums over passages, in a store, or of means."""
    said, tensors = part
    many = said.get("of", said["passages"])
    sides = {name: dict(enumerate(tensors[name].float() / max(1, many))) for name in ("J", "K")}
    return JacobianLens(
        sides["J"], sides["K"], said["passages"], Provenance.from_dict(said["provenance"])
    )


def _read_published(path: Path, model: Model) -> JacobianLens:
    """Read a published file: data alone, nothing in it is executed."""
    try:
        payload = torch.load(path, map_location="cpu", weights_only=True)
        sides = {
            name: {int(layer): each.float() for layer, each in payload.get(name, {}).items()}
            for name in ("J", "K")
        }
        passages, wide = int(payload["n_prompts"]), int(payload["d_model"])
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, LookupError, ValueError, TypeError, AttributeError) as error:  # fmt: skip
        cause = str(error).partition("\n")[0][:120]
        raise DataRefused(
            f"{path} is not a Jacobian lens ({type(error).__name__}: {cause}).",
            remedy="a .pt file with J, n_prompts and d_model, or a folder of fit-lens",
        ) from None
    if not sides["J"] or wide != model.config.d_model:
        raise DataRefused(
            f"{path} is a lens of {len(sides['J'])} layers of {wide} numbers; {model.name} has "
            f"{model.config.d_model}."
        )
    provenance = model.provenance(settings={"file": path.name, "passages": passages})
    return JacobianLens(sides["J"], sides["K"], passages, provenance)
