"""The two sides of a neuron: the question it asks and the answer it gives, each with its tokens."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from ffnprobe.models.model import Model
from ffnprobe.reading.ordering import check_top
from ffnprobe.reading.projection import answer_readers, question_readers
from ffnprobe.reading.tokens import TokenValue, list_tokens

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class QuestionSide:
    """What a neuron asks of the residual stream: a direction, and the tokens that open it."""

    model: Model
    direction: Float[Tensor, " d_model"]
    through: str

    def top(self, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` tokens that open the question most: token, id, value."""
        readers = question_readers(self.model, self.direction[None], through=self.through)
        table = _table(
            list_tokens(self.model, *readers, check_top(top, self.model.config.vocab, of="tokens"))[
                0
            ]
        )
        return self.model.provenance(settings={"questions_through": self.through}).note(table)


@dataclass(frozen=True, eq=False, repr=False)
class AnswerSide:
    """What a neuron adds to the residual stream: a direction, and the tokens it moves."""

    model: Model
    direction: Float[Tensor, " d_model"]
    convention: str

    def promotes(self, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` tokens the answer raises most: token, id, value."""
        return self._table(top, smallest=False)

    def suppresses(self, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` tokens the answer lowers most: token, id, value."""
        return self._table(top, smallest=True)

    def _table(self, top: int | None, *, smallest: bool) -> "pd.DataFrame":
        k = check_top(top, self.model.config.vocab, of="tokens")
        readers = answer_readers(self.model, self.direction[None], convention=self.convention)
        is_centred = self.convention == "centred"
        found = list_tokens(self.model, *readers, k, smallest=smallest, is_centred=is_centred)
        return self.model.provenance(convention=self.convention).note(_table(found[0]))


def _table(listed: list[TokenValue]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(listed, columns=["token", "id", "value"])
