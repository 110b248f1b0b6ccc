"""Tokenizers of words, tokenizers that are given, and models without one."""

import json

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

import ffnprobe as fp
from ffnprobe.errors import ModelNotLoaded, TokenNotFound
from ffnprobe.models.vocab import Vocab
from tests.builders import write_model

WORDS = ("[UNK]", "the", "cat", "sat", "on", "mat", "Paris", "football")


def word_level():
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def word_piece():
    pieces = [*WORDS, "##s", "##ball", "foot"]
    tokenizer = Tokenizer(models.WordPiece({w: n for n, w in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


@pytest.fixture
def bare(tmp_path):
    """A folder without a tokenizer."""
    folder = write_model(tmp_path / "bare")
    (folder / "tokenizer.json").unlink()
    return folder


def test_words_are_tokens_and_spaces_belong_to_none(bare):
    word_level().save(str(bare / "tokenizer.json"))
    model = fp.load(bare)
    trace = fp.run(model, "the cat sat on the  mat")
    assert trace.ids[1:] == (1, 2, 3, 4, 1, 5)
    assert trace.tokens[1:] == ("the", "cat", "sat", "on", "the", "mat")
    assert model.vocab.one(" football") == model.vocab.one("football") == 7
    pushes = fp.attribute(trace, " football")
    assert pushes.provenance.answer == "football"
    assert model.vocab.text([1, 2, 3]) == "the cat sat"
    assert len(set(model.vocab.shown)) == 301


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the dog sat", "'dog' is not in this vocabulary of words"),
        ("the cats", "'cats' is not in this vocabulary of words"),
    ],
)
def test_a_word_the_vocabulary_does_not_have_is_refused(text, words):
    vocab = Vocab(word_level(), size=301, bos=None)
    with pytest.raises(TokenNotFound, match=words):
        vocab.ids(text)


def test_pieces_of_words_are_shown_as_they_are_spelt():
    vocab = Vocab(word_piece(), size=301, bos=None)
    assert vocab.show_all(vocab.ids("the cats sat")) == ["the", "cat", "##s", "sat"]
    with pytest.raises(TokenNotFound, match="is 2 tokens here"):
        vocab.one("cats")


@pytest.mark.parametrize("kind", ["file", "folder", "object", "transformers"])
def test_a_tokenizer_can_be_given(kind, bare, tmp_path):
    path = tmp_path / "words" / "tokenizer.json"
    path.parent.mkdir()
    word_level().save(str(path))
    if kind == "transformers":
        from transformers import PreTrainedTokenizerFast

        given = PreTrainedTokenizerFast(tokenizer_object=word_level())
    else:
        given = {"file": path, "folder": str(path.parent), "object": word_level()}[kind]
    assert fp.run(fp.load(bare, tokenizer=given), "the cat").ids[1:] == (1, 2)


def test_without_a_tokenizer_tokens_are_numbers(bare, tiny):
    with pytest.raises(ModelNotLoaded, match="has no tokenizer") as refused:
        fp.load(bare)
    assert 'tokenizer="ids"' in str(refused.value.remedy)
    model = fp.load(bare, tokenizer="ids")
    trace = fp.run(model, "12 7 300")
    assert trace.ids == (0, 12, 7, 300)
    assert trace.tokens == ("0", "12", "7", "300")
    torch.testing.assert_close(trace.logits, fp.run(tiny, [12, 7, 300]).logits, rtol=0, atol=0)
    assert fp.explain(model, "12 7 300", "5", top=2).tables()
    for wrong in ("12 cat", "301", "-1"):
        with pytest.raises(TokenNotFound, match="cannot be split"):
            fp.run(model, wrong)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            7,
            "tokenizer = 7: load takes a Tokenizer, a TransformersTokenizer, text, a path or None.",
        ),
        ("nowhere.json", "there is no tokenizer nowhere.json"),
        ("n" * 300, "there is no tokenizer nnn"),
    ],
)
def test_what_is_not_a_tokenizer_is_refused(given, words, bare):
    with pytest.raises(fp.FfnProbeError, match=words):
        fp.load(bare, tokenizer=given)


def test_merges_are_not_left_out_by_chance(tmp_path):
    folder = write_model(tmp_path)
    path = folder / "tokenizer.json"
    state = json.loads(path.read_text())
    state["model"]["dropout"] = 0.5
    path.write_text(json.dumps(state))
    vocab = fp.load(folder).vocab
    assert len({tuple(vocab.ids("the basketball court in Paris")) for _ in range(20)}) == 1


def test_rules_that_multiply_a_text_are_refused(tmp_path):
    folder = write_model(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("a", "a" * 20)] * 4)
    tokenizer.save(str(folder / "tokenizer.json"))
    with pytest.raises(ModelNotLoaded, match="can make a text 160,000 times as long"):
        fp.load(folder)


def test_a_panic_in_the_tokenizer_is_said_in_words(tmp_path):
    folder = write_model(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(x+x+)+y"), "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))
    with pytest.raises(
        TokenNotFound, match="the tokenizer gave up on this text of 2,000 characters"
    ):
        fp.run(fp.load(folder), "x" * 2000)


SPECIAL = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}  # fmt: skip
# Where a tokenizer.json holds ids: what is written into the file's state, with an id.
PLACES = {
    "BPE": lambda state, token: state["model"]["vocab"].update({"far": token}),
    "WordLevel": lambda state, token: state.update(
        model={"type": "WordLevel", "vocab": {"[UNK]": 0, "far": token}, "unk_token": "[UNK]"}
    ),
    "WordPiece": lambda state, token: state.update(
        model={
            "type": "WordPiece", "vocab": {"[UNK]": 0, "far": token}, "unk_token": "[UNK]",
            "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        }
    ),
    "Unigram": lambda state, token: state.update(
        model={"type": "Unigram", "vocab": [["<unk>", 0.0], ["far", -1.5]], "unk_id": token}
    ),
    "added": lambda state, token: state["added_tokens"].append(
        SPECIAL | {"content": "<far>", "id": token}
    ),
    "template": lambda state, token: state.update(
        post_processor={
            "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<far>": {"id": "<far>", "ids": [0, token], "tokens": ["a", "<far>"]}},
        }
    ),
    "pair of special tokens": lambda state, token: state.update(
        post_processor={"type": "BertProcessing", "sep": ["[SEP]", token], "cls": ["[CLS]", 0]}
    ),
}  # fmt: skip


@pytest.mark.parametrize(("token", "indent"), [(2**26 + 1, None), (2**32 - 2, 2)])
@pytest.mark.parametrize("place", PLACES)
def test_an_id_that_no_vocabulary_has_is_refused_before_a_library_reads_it(
    place, token, indent, tmp_path, monkeypatch
):
    path = write_model(tmp_path) / "tokenizer.json"
    state = json.loads(path.read_text())
    PLACES[place](state, token)
    path.write_text(json.dumps(state, indent=indent))
    monkeypatch.setattr("ffnprobe.models.tokenizer.Tokenizer", None)
    with pytest.raises(
        ModelNotLoaded, match=f"tokenizer.json holds the number {token:,}; ffnprobe reads ids"
    ):
        fp.load(tmp_path)


def test_an_id_beyond_the_models_rows_is_refused_before_a_list_is_as_long(tmp_path):
    folder = write_model(tmp_path)
    state = json.loads((folder / "tokenizer.json").read_text())
    said = "the tokenizer has token 40000000; the model knows 301"
    given = Tokenizer(models.WordLevel({"the": 0, "far": 40_000_000}))
    with pytest.raises(ModelNotLoaded, match=said):
        fp.load(folder, tokenizer=given)
    state["model"]["vocab"]["far"] = 40_000_000
    (folder / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(ModelNotLoaded, match=said):
        fp.load(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "merges.txt").write_text("")
    (folder / "vocab.json").write_text(json.dumps(state["model"]["vocab"]))
    with pytest.raises(ModelNotLoaded, match=said):
        fp.load(folder)
    (folder / "vocab.json").write_text(json.dumps({"a": 0, "far": 10**9}))
    with pytest.raises(ModelNotLoaded, match=r"vocab\.json holds the number 1,000,000,000; "):
        fp.load(folder)


def test_a_token_that_reads_like_a_large_id_is_a_token(bare):
    odd = ':4294967294,"far":4294967294}'
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, odd: 1}, unk_token="[UNK]"))
    tokenizer.save(str(bare / "tokenizer.json"))
    assert fp.load(bare).vocab.tokenizer.token_to_id(odd) == 1
