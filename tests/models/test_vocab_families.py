"""Each family's vocabulary: Hugging Face's ids for a text that begins, no space for one that goes on."""

import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ffnprobe.errors import ModelNotLoaded, TokenNotFound
from ffnprobe.models.loading import read_vocab
from tests.vocabularies import FAMILIES, gemma, llama2, qwen2

SIZE = 600
BLOCKS = ("llama2", "mistral", "gemma")
TEXTS = (
    "Paris is the capital of France", " Paris", "Paris", "two  spaces   three    four", "x",
    "line\nbreak\n\n\ttab \n", "naïve — 東京 🙂", "    indented", "        deeper", "trailing ",
    "1999 and  12345", "it's THE end's", "<0x0A> is no byte here", "_\n)\n", "",
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: write(tmp_path_factory.mktemp(name)) for name, write in FAMILIES.items()}


@pytest.fixture(scope="module")
def vocabs(folders):
    return {name: read_vocab(folder, size=SIZE, bos=3) for name, folder in folders.items()}


def hugging_face(folder):
    """Read a tokenizer the way Hugging Face does."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_that_begins_has_hugging_faces_ids(family, folders, vocabs):
    theirs = hugging_face(folders[family])
    for text in TEXTS:
        assert vocabs[family].ids(text) == theirs.encode(text, add_special_tokens=False), text


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_that_goes_on_is_written_as_it_is(family, vocabs):
    vocab = vocabs[family]
    for text in TEXTS:
        assert vocab.text(vocab.pieces(text)) == text
    assert vocab.show_all(vocab.pieces(" Paris")) == ["␣Paris"]
    assert vocab.show(vocab.one(" Paris")) == "␣Paris"
    assert "␣" not in "".join(vocab.show_all(vocab.pieces("Paris")))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_and_its_answer_are_the_tokens_of_the_whole(family, vocabs):
    vocab = vocabs[family]
    prompt, answer = "the capital of France is", " Paris"
    assert [*vocab.ids(prompt), *vocab.pieces(answer)] == vocab.ids(prompt + answer)


@given(st.text(max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_comes_back_or_is_refused(vocabs, text):
    for name, vocab in vocabs.items():
        try:
            assert vocab.text(vocab.pieces(text)) == text
            begun = vocab.text(vocab.ids(text))
        except TokenNotFound:
            assert not unicodedata.is_normalized("NFC", text) or "▁" in text
            continue
        assert begun == text or (name in ("llama2", "mistral") and begun == " " + text)


def test_only_the_space_put_in_front_is_forgiven(vocabs):
    # Llama 2 puts one in front whatever the text begins with; Mistral only where there is none.
    shown = {name: vocabs[name].show_all(vocabs[name].ids(" Paris")) for name in BLOCKS}
    assert shown["mistral"] == shown["gemma"] == ["␣Paris"]
    assert "".join(shown["llama2"]) == "␣␣Paris"
    for name in ("llama2", "mistral"):
        assert vocabs[name].show_all(vocabs[name].ids("Paris")) == ["␣Paris"]


@pytest.mark.parametrize("family", FAMILIES)
def test_all_tokens_look_distinct(family, vocabs):
    shown = [unicodedata.normalize("NFC", form) for form in vocabs[family].shown]
    assert len(set(shown)) == len(shown) == SIZE
    assert all(form and not any(c.isspace() for c in form) for form in shown)
    assert "▁" not in "".join(shown)


def test_a_byte_and_its_letter_are_two_tokens(vocabs):
    vocab = vocabs["gemma"]
    find = vocab.tokenizer.token_to_id
    assert [vocab.show(find(token)) for token in ("\n", "<0x0A>", "▁▁", "<0x50>", "P")] == [
        "⏎", "⟨0A⟩", "␣␣", "⟨50⟩", "P",
    ]  # fmt: skip
    assert vocab.text([find("<0xE6>"), find("<0x9D>"), find("<0xB1>")]) == "東"
    assert vocab.pieces("東") == [find("<0xE6>"), find("<0x9D>"), find("<0xB1>")]


def test_runs_of_spaces_added_to_a_vocabulary_that_has_them(vocabs):
    vocab = vocabs["neox"]
    own, added = vocab.tokenizer.token_to_id("ĠĠĠ"), vocab.tokenizer.token_to_id("   ")
    assert own is not None, "trained on indented text"
    assert own != added
    assert vocab.bytes(own) == vocab.bytes(added) == b"   "
    assert (vocab.show(own), vocab.show(added)) == ("␣␣␣", f"␣␣␣⟨id:{added}⟩")


@pytest.mark.parametrize(
    ("family", "bos"),
    [
        ("llama3", "<|begin_of_text|>"), ("qwen2", None), ("smollm2", "<|im_start|>"),
        ("neox", "<|endoftext|>"), ("opt", "</s>"), ("llama2", "<s>"), ("mistral", "<s>"),
        ("gemma", "<bos>"),
    ],
)  # fmt: skip
def test_bos_is_the_tokenizers_own(family, bos, vocabs):
    vocab = vocabs[family]
    assert (None if vocab.bos is None else vocab.show(vocab.bos)) == bos
    assert vocab.puts_bos(None) is (bos is not None)
    assert vocab.puts_bos(True)
    assert not vocab.puts_bos(False)


def test_bos_is_the_configurations_where_the_tokenizer_names_none(tmp_path):
    folder = qwen2(tmp_path)
    (folder / "tokenizer_config.json").unlink()
    end = read_vocab(folder, size=SIZE, bos=None).tokenizer.token_to_id("<|endoftext|>")
    assert read_vocab(folder, size=SIZE, bos=7).bos == 7
    assert read_vocab(folder, size=SIZE, bos=None).bos == end
    assert read_vocab(folder, size=SIZE, bos=SIZE).bos == end, "GPT-2's id in a small vocabulary"
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    assert read_vocab(folder, size=SIZE, bos=7).bos == 7, "a name no token has"
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(ModelNotLoaded, match=r"tokenizer_config\.json is not JSON"):
        read_vocab(folder, size=SIZE, bos=7)


@pytest.mark.parametrize(
    ("family", "special"),
    [("smollm2", "<|im_start|>"), ("opt", "</s>"), ("llama2", "<s>"), ("mistral", "[INST]")],
)
def test_a_special_token_in_a_text_is_that_token(family, special, folders, vocabs):
    vocab, theirs = vocabs[family], hugging_face(folders[family])
    for text in (special, f"{special}Paris", f"the {special} Paris{special}"):
        assert vocab.ids(text) == theirs.encode(text, add_special_tokens=False)
        assert vocab.tokenizer.token_to_id(special) in vocab.ids(text)
        assert vocab.text(vocab.pieces(text)) == text
    assert vocab.show(vocab.one(special)) == special


def test_text_that_would_be_normalised_is_refused_in_words(vocabs):
    for family in ("qwen2", "neox"):
        with pytest.raises(TokenNotFound, match="is not in Unicode's form NFC") as caught:
            vocabs[family].ids("cafe\u0301")
        assert caught.value.remedy == 'unicodedata.normalize("NFC", text)'
        assert vocabs[family].ids("caf\u00e9")
    assert vocabs["llama3"].text(vocabs["llama3"].ids("cafe\u0301")) == "cafe\u0301"
    with pytest.raises(TokenNotFound, match="cannot write"):
        vocabs["gemma"].ids("a▁b")


def test_a_token_without_a_row_is_refused(tmp_path):
    folder = gemma(tmp_path)
    place = read_vocab(folder, size=SIZE, bos=None).tokenizer.token_to_id("<image_soft_token>")
    vocab = read_vocab(folder, size=place, bos=None)
    assert len(vocab.shown) == place
    with pytest.raises(TokenNotFound, match="holds <image_soft_token>, which the model has no row"):
        vocab.ids("see <image_soft_token>")
    with pytest.raises(ModelNotLoaded, match=f"the tokenizer has {place} tokens; the model knows"):
        read_vocab(folder, size=place - 1, bos=None)


def test_a_tokenizer_of_another_kind_is_refused(tmp_path):
    from tokenizers import Tokenizer, models

    folder = llama2(tmp_path / "likely")
    likely = Tokenizer(models.Unigram([("<unk>", 0.0), ("é", -1.0)], unk_id=0))
    likely.save(str(folder / "tokenizer.json"))
    with pytest.raises(ModelNotLoaded, match="neither byte-level BPE nor BPE with bytes"):
        read_vocab(folder, size=SIZE, bos=None)
    assert read_vocab(folder, size=SIZE, bos=None, tokenizer="ids").ids("3 7") == [3, 7]
    pair = FAMILIES["opt"](tmp_path / "pair")
    (pair / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2TokenizerFast"}')
    with pytest.raises(ModelNotLoaded, match="is for a Qwen2Tokenizer, which") as caught:
        read_vocab(pair, size=SIZE, bos=None)
    assert caught.value.remedy == "its tokenizer.json"
