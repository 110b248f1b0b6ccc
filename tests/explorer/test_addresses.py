"""Addresses hold what a page shows, whatever the text."""

import pytest

from ffnprobe.errors import OptionRefused
from ffnprobe.views.explorer.addresses import Address, name_token, read_address


@pytest.mark.parametrize("text", [" basketball", "a+b&c=d#e?", "␣", "Ünïcode\n", "%41", "<script>"])
def test_an_address_gives_back_what_was_put_in(text):
    written = Address("/", ()).here(prompt=text, **name_token("answer", text))
    path, _, search = written.partition("?")
    address = read_address(path, f"?{search}")
    assert address.text("prompt") == text
    assert address.token("answer") == text
    assert "<" not in written
    assert " " not in written


def test_an_answer_is_named_by_text_or_by_id_never_both():
    address = read_address("/", "?prompt=a&answer=b&answer_id=7")
    assert address.token("answer") == 7
    assert read_address("/", address.here(**name_token("answer", "c"))[1:]).token("answer") == "c"
    with pytest.raises(OptionRefused, match="is not a token id"):
        read_address("/", "?answer_id=x").token("answer")


def test_the_question_is_carried_and_the_rest_is_left():
    address = read_address("/", "?prompt=a&versus=b&after=L2&bos=0")
    assert address.to("/neuron/L0N1") == "/neuron/L0N1?prompt=a&versus=b&bos=0"
    assert address.bos is False


def test_a_thousand_options_are_not_looked_at():
    assert len(read_address("/", "?" + "&".join(f"a{n}=1" for n in range(1000))).options) == 64
