"""What a client can read without asking a question: model cards, surveys, pages of the docs.

ffnprobe://models/NAME/card.md           what the model is, and how to name its neurons
ffnprobe://models/NAME/survey.parquet    every neuron, one row each
ffnprobe://docs/PAGE.md                  the docs, agents.md first: how to ask
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from mcp.server.mcpserver.resources import Resource
from pydantic import Field

from ffnprobe.labels.surveying import survey
from ffnprobe.serving.budgets import Budget
from ffnprobe.serving.service import Service
from ffnprobe.views.saving import encode_result

SCHEME = "ffnprobe://"
SKILL = "agents.md"
HOW_TO_ASK = f"{SCHEME}docs/{SKILL}"
MARKDOWN, PARQUET = "text/markdown", "application/vnd.apache.parquet"
# A survey of GPT-2 small takes some minutes on one core.
SURVEY_SECONDS = 900.0


class Page(Resource):
    """Something that can be read; `make` writes it, within a budget."""

    mime_type: str = MARKDOWN
    make: Callable[[Budget], str | bytes] = Field(exclude=True)

    async def read(self) -> str | bytes:
        """Write it."""
        return self.make(Budget(SURVEY_SECONDS))


def list_pages(service: Service) -> Iterator[Page]:
    """List what can be read, how to ask first."""
    for name, text in sorted(read_docs().items(), key=lambda each: (each[0] != SKILL, each)):
        title, make = text.partition("\n")[0].lstrip("# "), partial(_give, text)
        yield Page(uri=f"{SCHEME}docs/{name}", name=name, description=title, make=make)
    for model in service.models.sources:
        at = f"{SCHEME}models/{quote(model, safe='')}"
        yield Page(
            uri=f"{at}/card.md", name=f"{model}: card", description="what the model is",
            make=partial(_read_card, service, model),
        )  # fmt: skip
        yield Page(
            uri=f"{at}/survey.parquet", name=f"{model}: survey", mime_type=PARQUET,
            description="every neuron, one row each", make=partial(_read_survey, service, model),
        )  # fmt: skip


def _give(text: str, _: Budget) -> str:
    return text


def _read_card(service: Service, name: str, budget: Budget) -> str:
    with service.wait(budget):
        return service.models.get(name).card()


def _read_survey(service: Service, name: str, budget: Budget) -> bytes:
    """Survey a model, once; with a scan of it that is served, also firing rates, roles and labels."""

    def make() -> bytes:
        scan, top = service.find_scan(model), min(5, model.config.vocab)
        return encode_result(survey(model, top=top, scan=scan, progress=budget.count), ".parquet")

    with service.wait(budget):
        model = service.models.get(name)
        return service.surveys.get_or_make(model.identity, make, size=len)


@cache
def read_docs() -> dict[str, str]:
    """Read the pages of the docs: they lie in the wheel, and in a checkout beside the package."""
    inside = files("ffnprobe").joinpath("docs")
    folder = inside if inside.is_dir() else Path(str(files("ffnprobe"))).parent / "docs"
    return {
        page.name: page.read_text(encoding="utf-8")
        for page in folder.iterdir()
        if page.name.endswith(".md")
    }
