import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from ffnprobe.errors import ModelNotLoaded, TokenNotFound
from ffnprobe.models.loading import read_vocab
from ffnprobe.models.vocab import show_bytes
from tests.builders import write_tokenizer


@pytest.fixture(scope="module")
def gpt2_vocab(shared):
    return read_vocab(shared / "data" / "gpt2_tokenizer", size=50257, bos=50256)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b" Paris", "␣Paris"),
        (b"\n\n", "⏎⏎"),
        (b"\t", "⇥"),
        ("\u00a0".encode(), "⟨U+00A0⟩"),
        ("\u200b".encode(), "⟨U+200B⟩"),
        ("\u2028".encode(), "⟨U+2028⟩"),
        (b"\x00", "⟨U+0000⟩"),
        ("é".encode(), "é"),
        (b"\xe2\x80", "⟨E2⟩⟨80⟩"),
        ("␣".encode(), "⟨U+2423⟩"),
        ("⟨E2⟩".encode(), "⟨U+27E8⟩E2⟨U+27E9⟩"),
    ],
)
def test_tokens_are_shown_unmistakably(data, shown):
    assert show_bytes(data) == shown


@given(st.binary(max_size=6), st.binary(max_size=6))
def test_distinct_bytes_look_distinct(one, other):
    assert (one == other) == (show_bytes(one) == show_bytes(other))


@pytest.mark.shared
def test_all_of_gpt2s_tokens_look_distinct(gpt2_vocab):
    shown = [unicodedata.normalize("NFC", form) for form in gpt2_vocab.shown]
    assert len(set(shown)) == len(shown) == 50257
    assert all(form.strip() == form and form for form in shown)


@pytest.mark.shared
def test_gpt2s_ids_equal_hugging_faces(gpt2_vocab, shared, tmp_path):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(shared / "data" / "gpt2_tokenizer")
    for text in (
        "Michael Jordan plays the sport of basketball",
        "naïve — 東京 \n\t x" + "  ",
        "🙂",
    ):
        assert gpt2_vocab.ids(text) == theirs.encode(text, add_special_tokens=False)
        assert gpt2_vocab.text(gpt2_vocab.ids(text)) == text
    assert gpt2_vocab.one(" basketball") == 9669
    # The older pair of files holds the same vocabulary.
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((shared / "data" / "gpt2_tokenizer" / name).read_bytes())
    pair = read_vocab(tmp_path, size=50257, bos=50256)
    assert pair.shown == gpt2_vocab.shown
    assert pair.ids("<|endoftext|>Hi") == gpt2_vocab.ids("<|endoftext|>Hi") == [50256, 17250]


def test_one_gives_the_id_or_lists_the_pieces_and_suggests(pocket):
    assert pocket.vocab.show(pocket.vocab.one(" basketball")) == "␣basketball"
    with pytest.raises(TokenNotFound) as caught:
        pocket.vocab.one(" basket ball", use="--versus")
    assert str(caught.value).startswith('" basket ball" is')
    assert '; --versus needs one.\n  try: " basketball"' in str(caught.value)


def test_a_missing_space_is_suggested_not_inserted(pocket):
    with pytest.raises(TokenNotFound) as caught:
        pocket.vocab.one("basketbal")
    assert '" basketball"' in caught.value.remedy
    with pytest.raises(TokenNotFound, match='"" is not a token'):
        pocket.vocab.one("")


def test_ids_without_a_token_have_a_form_of_their_own(tmp_path):
    write_tokenizer(tmp_path, size=290)
    vocab = read_vocab(tmp_path, size=301, bos=0)
    assert vocab.show(300) == "⟨id:300⟩"
    assert len(set(vocab.shown)) == 301


def test_text_the_vocabulary_cannot_write_is_refused_not_dropped(tmp_path):
    tokenizer = Tokenizer.from_str(
        '{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,'
        '"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},'
        '"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},'
        '"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,'
        '"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,'
        '"vocab":{"a":0,"b":1},"merges":[]}}'
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocab = read_vocab(tmp_path, size=2, bos=None)
    assert vocab.ids("ab") == [0, 1]
    with pytest.raises(TokenNotFound, match="'abc' holds characters this vocabulary cannot write"):
        vocab.ids("abc")


def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(ModelNotLoaded, match="has no tokenizer"):
        read_vocab(tmp_path, size=10, bos=0)
    write_tokenizer(tmp_path)
    with pytest.raises(ModelNotLoaded, match="the tokenizer has 300 tokens; the model knows 12"):
        read_vocab(tmp_path, size=12, bos=0)
    (tmp_path / "tokenizer.json").write_text("{ nonsense")
    with pytest.raises(ModelNotLoaded, match="cannot be read"):
        read_vocab(tmp_path, size=300, bos=0)
