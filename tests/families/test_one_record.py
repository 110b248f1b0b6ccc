"""A family is one record: no other file of the package names one, and a record is all it takes."""

import ast
import dataclasses
import json
from pathlib import Path

import pytest

import ffnprobe as fp
from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.families import FAMILIES
from tests.families.builders import CASES, write_family
from tests.families.conftest import TEXT

PACKAGE = Path(fp.__file__).parent
RECORDS = PACKAGE / "models" / "families.py"
NAMES = {
    name for family in FAMILIES.values() for name in (family.name, family.gguf, *family.classes)
    if name is not None
}  # fmt: skip
# What is spelt as a family's name and is something else.
OTHERS = {("models/gguf.py", "gpt2"): "GGUF's word for byte-level tokenizers of any family"}


def name_families(source: str) -> set[str]:
    """Find the strings of a module that are a family's name, or how several begin (`gemma`)."""
    strings = {
        node.value for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }  # fmt: skip
    return {
        text for text in strings if len(text) > 2
        and any(name.lower().startswith(text.lower()) for name in NAMES)
    }  # fmt: skip


def test_no_other_file_names_a_family():
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        if path != RECORDS
        for name in name_families(path.read_text(encoding="utf-8"))
    }
    assert found == set(OTHERS)
    assert name_families(RECORDS.read_text(encoding="utf-8")) >= NAMES


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ('if config.family == "gpt_neox":\n    head = "embed_out"', {"gpt_neox"}),
        ('CLASSES = {"opt": ("OPTConfig", "OPTForCausalLM")}', {"opt", "OPTConfig", "OPTForCausalLM"}),
        ('is_gemma = config.family.startswith("gemma")', {"gemma"}),
        ('match header.architecture:\n    case "gemma3":\n        pass', {"gemma3"}),
        ('def load(name):\n    """Load a model: `load("gpt2")`."""', set()),
        ('remedy = "pocket, gpt2, or a folder"  # a model\'s name, for people', set()),
    ],
)  # fmt: skip
def test_a_file_that_names_a_family_is_found(source, named):
    assert name_families(source) == named


def test_every_family_has_a_builder_and_every_builder_a_family():
    assert {case.split()[0] for case in CASES} == set(FAMILIES)


@pytest.mark.parametrize("hooks", [True, False])
def test_a_record_is_all_a_new_family_takes(hooks, tmp_path, monkeypatch):
    folder = write_family(tmp_path / "known", "llama")
    wanted = fp.run(fp.load(folder, hooks=hooks), TEXT)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "newcomer"}))
    with pytest.raises(ModelNotLoaded, match='is of architecture "newcomer"'):
        fp.load(folder)
    monkeypatch.setitem(
        FAMILIES, "newcomer", dataclasses.replace(FAMILIES["llama"], name="newcomer")
    )
    found = fp.run(fp.load(folder, hooks=hooks), TEXT)
    assert found.model.config.family == "newcomer"
    assert found.logits.equal(wanted.logits)
