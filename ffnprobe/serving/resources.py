"""What a client can read without asking a question: model cards, surveys, pages of the docs.

ffnprobe://models/NAME/card.md           what the model is, and how to name its neurons
ffnprobe://models/NAME/survey.parquet    every neuron, one row each
ffnprobe://docs/PAGE.md                  the docs, agents.md first: how to ask
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote, unquote

from ffnprobe.corpora.surveying import survey
from ffnprobe.errors import DataRefused
from ffnprobe.models.model import Model
from ffnprobe.models.pocket import FOLDER
from ffnprobe.serving.budgets import Budget
from ffnprobe.serving.service import Service
from ffnprobe.views.files.saving import encode_result

SCHEME = "ffnprobe://"
SKILL = "agents.md"
MARKDOWN, PARQUET = "text/markdown", "application/vnd.apache.parquet"
# A survey of GPT-2 small takes some minutes on one core.
SURVEY_SECONDS = 900.0


@dataclass(frozen=True)
class Page:
    """Something that can be read: its address, name, type and words."""

    address: str
    name: str
    type: str
    words: str


def list_pages(service: Service) -> Iterator[Page]:
    """List what can be read, how to ask first."""
    for name in sorted(read_docs(), key=lambda each: (each != SKILL, each)):
        title = read_docs()[name].partition("\n")[0].lstrip("# ")
        yield Page(f"{SCHEME}docs/{name}", name, MARKDOWN, title)
    for model in service.models.sources:
        at = f"{SCHEME}models/{quote(model, safe='')}"
        yield Page(f"{at}/card.md", f"{model}: card", MARKDOWN, "what the model is")
        yield Page(
            f"{at}/survey.parquet", f"{model}: survey", PARQUET, "every neuron, one row each"
        )


def read_page(service: Service, address: str, budget: Budget) -> tuple[str | bytes, str]:
    """Read what an address names, within a budget, and say its type."""
    room, _, rest = address.removeprefix(SCHEME).partition("/")
    if room == "docs" and rest in read_docs():
        return read_docs()[rest], MARKDOWN
    name, _, part = rest.partition("/")
    if room == "models" and part in ("card.md", "survey.parquet"):
        with service.wait(budget):
            model = service.models.get(unquote(name))
            if part == "card.md":
                return write_card(model), MARKDOWN
            found: bytes = service.surveys.get_or_make(
                model.identity, lambda: _survey(service, model, budget), size=len
            )
            return found, PARQUET
    raise DataRefused(f'there is nothing at "{address[:100]}".', remedy=f"{SCHEME}docs/{SKILL}")


def write_card(model: Model) -> str:
    """Write what a model is; pocket has a card of its own."""
    c = model.config
    facts = [
        f"# {model.name}",
        f"- family: {c.family}; {c.layers} layers of {c.d_mlp:,} neurons, L0N0 to L{c.layers - 1}N{c.d_mlp - 1}",
        f"- d_model {c.d_model}, {c.heads} heads, vocabulary {c.vocab:,}, {c.positions:,} positions",
        f"- {c.parameters():,} parameters; {'gated' if c.is_gated else 'not gated'}; "
        f"{'RMSNorm' if c.is_rms else 'LayerNorm'}",
        f"- source: {model.source}; weights {model.fingerprint}",
        f"- identity: {model.identity}",
        f"- activation means: {'known' if model.means is not None else 'not known, so removed means zero'}",
    ]
    told = "\n".join(facts) + "\n"
    if model.source.kind == "embedded":
        told += "\n" + (FOLDER / "CARD.md").read_text(encoding="utf-8")
    return told


def _survey(service: Service, model: Model, budget: Budget) -> bytes:
    """Survey a model; with a scan of it that is served, also firing rates, roles and labels."""
    scan = service.find_scan(model)
    found = survey(model, top=min(5, model.config.vocab), scan=scan, progress=budget.count)
    return encode_result(found, ".parquet")


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
