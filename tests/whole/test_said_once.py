"""What an explanation says is written once in the package, next to the result it is about."""

import ast
from collections import Counter
from pathlib import Path

import ffnprobe
from ffnprobe.evidence import curve, explanation, telling

PACKAGE = Path(ffnprobe.__file__).parent
WORDS = 5  # what is shorter is no sentence


def sentences(source):
    """Find the sentences in a module's texts, docstrings and errors' names aside."""
    found = []
    tree = ast.parse(source)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            found += [
                part.strip()
                for part in node.value.replace(";", ".").split(". ")
                if len(part.split()) >= WORDS
            ]
    return found


def count():
    return Counter(
        sentence
        for path in PACKAGE.rglob("*.py")
        for sentence in sentences(path.read_text(encoding="utf-8"))
    )


def test_no_sentence_of_an_explanation_is_written_twice():
    every, own = count(), []
    for module in (telling, explanation, curve):
        own += sentences(Path(module.__file__).read_text(encoding="utf-8"))
    assert len(own) > 15
    assert [sentence for sentence in own if every[sentence] > 1] == []


def test_a_sentence_twice_is_found():
    assert sentences('"""a b c d e."""\nx = "a b c d e. f g"\ny = f"1 2 3 4 5 {x}"') == [
        "a b c d e",
        "1 2 3 4 5",
    ]
