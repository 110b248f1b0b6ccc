"""Three ways to the logits of a few tokens: Hugging Face's, TransformerLens's and ours.

They read one configuration in three codes. Where they differ, one of them has misread it, and every
number after that is wrong in silence: so they are compared once for each model, when it is first run.
Ours (`ffnprobe.models.own_pass`) takes the time of a forward pass of eight tokens.

Limits: eight tokens do not show a window longer than they are, or how positions far out are told.
"""

from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.model import Model

TOKENS, STRIDE, WITHIN = 8, 7919, 1e-3


def few_tokens(model: Model) -> list[int]:
    """Choose token ids spread over the vocabulary."""
    many = min(TOKENS, model.config.positions)
    return [(1 + order * STRIDE) % model.config.vocab for order in range(many)]


def check_agreement(model: Model, logits: dict[str, Float[Tensor, "pos vocab"]]) -> bool:
    """Raise unless all logits are one; False where they overflow, so that nothing is compared."""
    named = list(logits.items())
    (first, wanted) = named[0]
    if not wanted.isfinite().all():
        return False
    for name, found in named[1:]:
        off = float((found - wanted).abs().max())
        if not off <= WITHIN * max(1.0, float(wanted.abs().max())):
            raise ModelNotLoaded(
                f"{model.name} is not run right: on {len(wanted)} tokens the logits of {name} are off "
                f"by {off:.2g} from those of {first}, so one of them misreads its configuration.",
                remedy="report its config.json; the verbs that read weights alone (read, survey) "
                "may be wrong for it too",
            )
    return True
