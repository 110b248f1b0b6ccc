"""The arguments that several tools share, with their words."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ffnprobe.errors import DataRefused
from ffnprobe.facts.contrasts import find_contrast_rows
from ffnprobe.facts.rows import FactRow
from ffnprobe.serving.table import Call
from ffnprobe.tracing.answers import describe_spelling, predicted
from ffnprobe.tracing.running import run

LONGEST_TEXT = 20_000
MOST_FACTS = 5_000
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Prompt = Annotated[
    str, Field(max_length=LONGEST_TEXT, description="The prompt, without a space at its end.")
]
Answer = Annotated[
    str, Field(max_length=200, description='The next text, with its leading space: " basketball".')
]
AnswerOrPrediction = Annotated[
    str | None,
    Field(
        max_length=200,
        description='The next text, with its leading space: " basketball"; the model\'s prediction by default.',
    ),
]
Versus = Annotated[
    str | None, Field(max_length=200, description="Ask why the answer rather than this token.")
]
Contrast = Annotated[
    list[Text] | None,
    Field(max_length=50, description="The same sentence about other subjects: asks what is owed to the subject."),
]  # fmt: skip
ContrastFrom = Annotated[
    str | None,
    Field(description='Take contrast prompts out of a table of facts that is served: "pocket".'),
]
Convention = Annotated[
    Literal["centred", "folded"],
    Field(description="Logits above the vocabulary's mean (centred), or the model's own (folded)."),
]
Replace = Annotated[
    Literal["zero", "mean"] | None,
    Field(description="What an ablated activation becomes; the mean where it is known, else zero."),
]
Layers = Annotated[str | None, Field(description="Only these layers: 3, 3-5 or 0,3-5.")]
Neurons = Annotated[
    list[str],
    Field(min_length=1, max_length=1000, description="Neurons L3N12, layers L3, ranges L3N5-L3N9."),
]
Position = Annotated[int, Field(description="The position that predicts; -1 is the last.")]
Positions = Annotated[
    int | list[int] | Literal["all"],
    Field(description='Positions: -1 (the last), [3, 5] or "all".'),
]
Bos = Annotated[
    bool | None, Field(description="Prepend the BOS token; by default if the model has one.")
]
Top = Annotated[int, Field(ge=1, description="How many neurons, tokens or parts to find.")]
Seed = Annotated[int, Field(ge=0, description="Seed of random controls and samples.")]


class FactArgument(BaseModel):
    """A fact: a prompt and the answer that truly follows it."""

    model_config = ConfigDict(extra="forbid")

    prompt: Text
    answer: Annotated[str, Field(max_length=200)]
    relation: str = ""
    subject: str = ""

    def row(self) -> FactRow:
        """Return the fact as `score` takes it."""
        return FactRow(self.prompt, self.answer, self.relation, self.subject)


Facts = Annotated[
    str | Annotated[list[FactArgument], Field(min_length=1, max_length=MOST_FACTS)],
    Field(description='A table that is served ("pocket"), or facts: [{"prompt", "answer", "relation", "subject"}].'),
]  # fmt: skip


def read_facts(call: Call, facts: str | list[FactArgument]) -> str | list[FactRow]:
    """Return rows, or the name of a table; no table is read but those that are served."""
    if not isinstance(facts, str):
        return [fact.row() for fact in facts]
    if facts not in call.service.facts:
        raise DataRefused(
            f'"{facts[:60]}" is not a table of facts that is served.',
            remedy=f"{', '.join(call.service.facts)}, or the facts themselves",
        )
    return call.service.facts[facts]


def read_contrast(
    call: Call, prompt: str, answer: str, texts: list[str] | None, facts: str | None
) -> "list[str | FactRow] | None":
    """Gather the contrast prompts given, and those that a served table has."""
    found: list[str | FactRow] = list(texts or [])
    if facts is not None:
        table = read_facts(call, facts)
        found += find_contrast_rows(table, prompt, answer, model=call.model.name)
    return found or None


def read_contrast_of(
    call: Call,
    prompt: str,
    answer: str | None,
    texts: list[str] | None,
    facts: str | None,
    *,
    bos: bool | None,
) -> "list[str | FactRow] | None":
    """Gather the contrast prompts; a table is asked about the prediction where no answer is given."""
    told = answer
    if told is None and facts is not None:
        trace = run(call.model, prompt, bos=bos, patterns=False)
        told = call.model.vocab.text([predicted(trace)])
    return read_contrast(call, prompt, told or "", texts, facts)


def note_spelling(call: Call, answer: str) -> None:
    """Note how an answer was split into tokens, and that the leading space may be missing."""
    for line in describe_spelling(call.model.vocab, answer):
        call.note(line)
