"""Turn what a user calls a prompt into token ids this model can run, or say why it cannot."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, overload

import torch

from ffnprobe.arguments import PROMPT, Bos, verb
from ffnprobe.errors import PromptRefused
from ffnprobe.models.bridge import hooks_of
from ffnprobe.models.forward import capture
from ffnprobe.models.model import Model
from ffnprobe.models.step import measure_scale
from ffnprobe.tracing.trace import Trace


def prompt_ids(model: Model, prompt: str | Sequence[int], *, bos: bool | None) -> tuple[int, ...]:
    """Return the token ids of a text (or check ids given), with BOS in front if the model has one, or as told."""
    if isinstance(prompt, str):
        if not prompt:
            raise PromptRefused(
                "the prompt is empty.", remedy='"Michael Jordan plays the sport of"'
            )
        ids = model.vocab.ids(prompt)
    else:
        ids = [int(token) for token in prompt]
        if not ids:
            raise PromptRefused("the prompt is empty.", remedy="a list of token ids")
        wrong = [token for token in ids if not 0 <= token < model.config.vocab]
        if wrong:
            raise PromptRefused(
                f"token id {wrong[0]} does not exist: {model.name} has 0–{model.config.vocab - 1}."
            )
    has_bos = model.vocab.puts_bos(bos)
    if has_bos:
        if model.vocab.bos is None:
            raise PromptRefused(f"{model.name} has no BOS token.", remedy="bos=False (--no-bos)")
        ids = [model.vocab.bos, *ids]
    if len(ids) > model.config.positions:
        raise PromptRefused(
            f"the prompt is {len(ids)} tokens{' with BOS' if has_bos else ''}; "
            f"{model.name} has {model.config.positions} positions.",
            remedy="a shorter prompt",
        )
    return tuple(ids)


# MERGED: ffnprobe.tracing.running
# Run prompts through the model and keep what happened as traces.
#
# >>> import ffnprobe as fp
# >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
# >>> trace.predictions(1).token.item()
# '␣basketball'


HOOKS = ("before_attention", "before_mlp", "scores", "activations", "mixes", "final")
EXTRA_HOOKS = ("gate_scores", "attention_totals", "mlp_totals")
# Prompts of one length run together up to this many tokens at a time.
TOKENS_AT_ONCE = 1024
# Fields of a trace that have no axis of layers; under which name it keeps itself with tokens behind it.
_BY_POSITION, _EXTENDED = ("final", "final_scale", "logits"), "_extended"


@overload
def run(model: Model, prompt: str, *, bos: bool | None = None, patterns: bool = True) -> Trace: ...
@overload
def run(
    model: Model, prompt: Sequence[int], *, bos: bool | None = None, patterns: bool = True
) -> Trace: ...
@overload
def run(
    model: Model, prompt: list[str], *, bos: bool | None = None, patterns: bool = True
) -> list[Trace]: ...
@verb
def run(
    model: Model,
    prompt: Annotated[str | Sequence[int] | Sequence[str], PROMPT],
    *,
    bos: Bos = None,
    patterns: bool = True,
) -> Trace | list[Trace]:
    """Run a prompt and list the predicted next tokens.

    A prompt is a text, or token ids; several texts give several traces, which keep what happened. BOS is put in front unless `bos=False`, or the model has none or says it is not put. Prompts of
    one length run as one batch, without padding, so that no number depends on its neighbours.

    >>> import ffnprobe as fp
    >>> prompts = ["Michael Jordan plays the sport of", "Tiger Woods plays the sport of"]
    >>> [trace.predictions(1).token.item() for trace in fp.run(fp.load("pocket"), prompts)]
    ['␣basketball', '␣golf']
    """
    bos = model.vocab.puts_bos(bos)
    several: list[Any] = [] if isinstance(prompt, str) else list(prompt)
    if several and all(isinstance(each, str) for each in several):
        return _run_all(model, several, bos=bos, patterns=patterns)
    ids = prompt_ids(model, prompt, bos=bos)  # type: ignore[arg-type]
    text = prompt if isinstance(prompt, str) else model.vocab.text(prompt)  # type: ignore[arg-type]
    return _run_batch(model, [text], [ids], bos=bos, patterns=patterns)[0]


def _run_all(model: Model, texts: list[str], *, bos: bool, patterns: bool) -> list[Trace]:
    all_ids = [prompt_ids(model, text, bos=bos) for text in texts]
    by_length: dict[int, list[int]] = {}
    for number, ids in enumerate(all_ids):
        by_length.setdefault(len(ids), []).append(number)
    traces: dict[int, Trace] = {}
    for length, numbers in by_length.items():
        size = max(1, TOKENS_AT_ONCE // length)
        for start in range(0, len(numbers), size):
            chosen = numbers[start : start + size]
            batch = _run_batch(
                model, [texts[n] for n in chosen], [all_ids[n] for n in chosen],
                bos=bos, patterns=patterns,
            )  # fmt: skip
            traces |= dict(zip(chosen, batch, strict=True))
    return [traces[number] for number in range(len(texts))]


def _run_batch(
    model: Model, texts: list[str], ids: list[tuple[int, ...]], *, bos: bool, patterns: bool
) -> list[Trace]:
    """Run prompts of one length together and cut the batch into traces."""
    hooks = [name for name in (*HOOKS, *EXTRA_HOOKS) if name in hooks_of(model)]
    found = capture(model, torch.tensor(ids), [*hooks, "patterns"] if patterns else hooks)
    scales = {
        "scales": measure_scale(model, found["before_mlp"]),
        "final_scale": measure_scale(model, found["final"]),
    }
    if model.config.has_post_norms:
        scales["attention_post_scales"] = measure_scale(model, found.pop("attention_totals"))
        scales["mlp_post_scales"] = measure_scale(model, found.pop("mlp_totals"))
    return [
        Trace(
            model=model, prompt=text, ids=ids[row], has_bos=bos, logits=found["logits"][row],
            final=found["final"][row], final_scale=scales["final_scale"][row],
            before_attention=found["before_attention"][:, row],
            before_mlp=found["before_mlp"][:, row],
            scores=found["scores"][:, row],
            activations=found["activations"][:, row],
            mixes=found["mixes"][:, row],
            patterns=found["patterns"][:, row] if patterns else None,
            gate_scores=found["gate_scores"][:, row] if model.config.is_gated else None,
            **{name: scale[:, row] for name, scale in scales.items() if name != "final_scale"},
        )
        for row, text in enumerate(texts)
    ]  # fmt: skip


def extend(trace: Trace, position: int, tokens: Sequence[int]) -> Trace:
    """Return the prompt up to a position with tokens behind it; the last one is kept with the trace."""
    model, ids = trace.model, (*trace.ids[: position + 1], *tokens)
    if len(ids) > model.config.positions:
        raise PromptRefused(
            f"the prompt is {position + 1} tokens and the answer {len(tokens) + 1}; {model.name} "
            f"has {model.config.positions} positions.",
            remedy="a shorter prompt, or an answer of one token",
        )
    found: Trace | None = vars(trace).get(_EXTENDED)
    if found is None or found.ids != ids:
        own, has_patterns = ids[trace.has_bos :], trace.patterns is not None
        found = run(model, own, bos=trace.has_bos, patterns=has_patterns)
        vars(trace)[_EXTENDED] = found
    return found


def run_before(
    model: Model, prompt: str | Sequence[int], tokens: Sequence[int], *, bos: bool | None
) -> Trace:
    """Run a prompt with tokens behind it, once: the trace is the prompt's, and `extend` knows the whole."""
    ids, text = prompt_ids(model, prompt, bos=bos), prompt
    many = len(ids)
    if not tokens or many + len(tokens) > model.config.positions:
        return run(model, prompt, bos=bos)
    own = ids[model.vocab.puts_bos(bos) :]
    whole = run(model, [*own, *tokens], bos=bos)
    cut: dict[str, Any] = {name: getattr(whole, name)[:many] for name in ("ids", *_BY_POSITION)}
    for each in fields(whole):
        value = getattr(whole, each.name)
        if isinstance(value, torch.Tensor) and each.name not in cut:
            is_pattern = each.name == "patterns"
            cut[each.name] = value[:, :, :many, :many] if is_pattern else value[:, :many]
    trace = replace(whole, prompt=text if isinstance(text, str) else model.vocab.text(own), **cut)
    vars(trace)[_EXTENDED] = whole
    return trace
