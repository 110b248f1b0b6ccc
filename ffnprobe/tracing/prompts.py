"""Turn what a user calls a prompt into token ids this model can run, or say why it cannot."""

from collections.abc import Sequence

from ffnprobe.errors import PromptRefused
from ffnprobe.models.model import Model


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
