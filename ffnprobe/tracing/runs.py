"""Run prompts through the model and keep what happened as traces."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, overload

import torch

from ffnprobe.arguments import PROMPT, Bos, verb
from ffnprobe.errors import PromptRefused
from ffnprobe.models.forward import capture
from ffnprobe.models.model import Model
from ffnprobe.models.step import hooks_of, measure_scale
from ffnprobe.tracing.trace import Trace

# Prompts of one length run together up to this many tokens at a time.
TOKENS_AT_ONCE = 1024
# Fields of a trace that have no axis of layers; under which name it keeps itself with tokens behind it.
_BY_POSITION, _EXTENDED = ("final", "final_scale", "logits"), "_extended"


def prompt_ids(model: Model, prompt: str | Sequence[int], *, bos: bool | None) -> tuple[int, ...]:
    """Return the token ids of a text, or check ids given, with BOS in front if it is put there."""
    is_text = isinstance(prompt, str)
    if not len(prompt):
        remedy = '"Michael Jordan plays the sport of"' if is_text else "a list of token ids"
        raise PromptRefused("the prompt is empty.", remedy=remedy)
    if isinstance(prompt, str):
        ids = model.vocab.ids(prompt)
    else:
        ids = [int(token) for token in prompt]
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


@overload
def run(
    model: Model, prompt: str | Sequence[int], *, bos: bool | None = None, patterns: bool = True
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

    A prompt is a text, or token ids; several texts give several traces, which keep what happened. BOS
    is put in front unless `bos=False`, or the model has none or says it is not put. Prompts of one
    length run as one batch, without padding, so that no number depends on its neighbours.

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
    return _run_batch(model, [(text, ids)], bos=bos, patterns=patterns)[0]


def _run_all(model: Model, texts: list[str], *, bos: bool, patterns: bool) -> list[Trace]:
    prompts = [(text, prompt_ids(model, text, bos=bos)) for text in texts]
    by_length: dict[int, list[int]] = defaultdict(list)
    for number, (_, ids) in enumerate(prompts):
        by_length[len(ids)].append(number)
    traces: dict[int, Trace] = {}
    for length, numbers in by_length.items():
        size = max(1, TOKENS_AT_ONCE // length)
        for start in range(0, len(numbers), size):
            chosen = numbers[start : start + size]
            batch = _run_batch(model, [prompts[n] for n in chosen], bos=bos, patterns=patterns)
            traces |= zip(chosen, batch, strict=True)
    return [traces[number] for number in range(len(texts))]


def _run_batch(
    model: Model, prompts: list[tuple[str, tuple[int, ...]]], *, bos: bool, patterns: bool
) -> list[Trace]:
    """Run prompts of one length together and cut the batch into traces."""
    hooks = [name for name in hooks_of(model) if patterns or name != "patterns"]
    captured = capture(model, torch.tensor([ids for _, ids in prompts]), hooks)
    captured["scales"] = measure_scale(model, captured["before_mlp"])
    captured["final_scale"] = measure_scale(model, captured["final"])
    if model.config.has_post_norms:
        for part in ("attention", "mlp"):
            total = captured.pop(f"{part}_totals")
            captured[f"{part}_post_scales"] = measure_scale(model, total)
    traces = []
    for row, (text, ids) in enumerate(prompts):
        own: dict[str, Any] = {
            name: tensor[row] if name in _BY_POSITION else tensor[:, row]
            for name, tensor in captured.items()
        }
        own.setdefault("patterns", None)
        traces.append(Trace(model=model, prompt=text, ids=ids, has_bos=bos, **own))
    return traces


def extend(trace: Trace, position: int, tokens: Sequence[int]) -> Trace:
    """Return the prompt up to a position with tokens behind it; the last one is kept with the trace."""
    model, ids = trace.model, (*trace.ids[: position + 1], *tokens)
    if len(ids) > model.config.positions:
        raise PromptRefused(
            f"the prompt is {position + 1} tokens and the answer {len(tokens) + 1}; {model.name} "
            f"has {model.config.positions} positions.",
            remedy="a shorter prompt, or an answer of one token",
        )
    extended: Trace | None = vars(trace).get(_EXTENDED)
    if extended is None or extended.ids != ids:
        own, has_patterns = ids[trace.has_bos :], trace.patterns is not None
        extended = run(model, own, bos=trace.has_bos, patterns=has_patterns)
        vars(trace)[_EXTENDED] = extended
    return extended


def run_before(
    model: Model, prompt: str | Sequence[int], tokens: Sequence[int], *, bos: bool | None
) -> Trace:
    """Run a prompt with tokens behind it, once: the trace is the prompt's, and `extend` knows the whole."""
    ids = prompt_ids(model, prompt, bos=bos)
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
    text = prompt if isinstance(prompt, str) else model.vocab.text(own)
    trace = replace(whole, prompt=text, **cut)
    vars(trace)[_EXTENDED] = whole
    return trace
