"""Search by token: z from the covariance is z from every projection, and hubs do not win."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import OptionRefused, TokenNotFound
from tests.reading.conftest import ANSWERED, ASKED, ASKER, HUB


def direct(model, token, by):
    """z, dot and cosine of every neuron for one token, from the whole product in float64."""
    rows = model.answers if by == "answer" else model.questions
    tokens = model.unembedding if by == "answer" else model.embedding
    rows, tokens = rows.flatten(0, 1).double(), tokens.double()
    values = rows @ tokens.T
    away = values[:, token] - values.mean(-1)
    cosine = torch.cosine_similarity(rows, tokens[token][None], dim=-1)
    return {
        "z": away / values.std(-1, correction=0),
        "dot": away if by == "answer" else values[:, token],
        "cosine": cosine,
    }


@pytest.mark.parametrize("by", ["answer", "question"])
@pytest.mark.parametrize("model_name", ["tiny", "pocket"])
def test_z_dot_and_cosine_are_those_of_the_whole_product(request, model_name, by):
    model = request.getfixturevalue(model_name)
    token = model.vocab.one(" basketball")
    expected = direct(model, token, by)
    found = fp.search(model, " basketball", by=by, top=model.config.neurons).table
    numbers = (found.layer * model.config.d_mlp + found.neuron).tolist()
    for column, values in expected.items():
        assert found[column].tolist() == pytest.approx(values[numbers].tolist(), rel=1e-3, abs=1e-4)
    assert found.z.is_monotonic_decreasing


@pytest.mark.parametrize("rank", ["z", "cosine", "dot"])
def test_rank_and_away(tiny, rank):
    toward = fp.search(tiny, " basketball", rank=rank, top=156).table
    against = fp.search(tiny, " basketball", rank=rank, top=156, away=True).table
    assert toward[rank].is_monotonic_decreasing
    assert against[rank].is_monotonic_increasing
    assert against.name.tolist() == toward.name.tolist()[::-1]
    assert "suppresses" in against
    settings = against.attrs["provenance"]["settings"]
    assert settings == {"by": "answer", "rank": rank, "away": True, "layers": [0, 1, 2]}


def test_a_planted_hub_does_not_top_the_list(planted):
    answered = planted.vocab.text([ANSWERED])
    by_dot = fp.search(planted, answered, rank="dot", top=2).table
    assert by_dot.name[0] == "L{}N{}".format(*HUB), "the hub must be one by dot product"
    by_z = fp.search(planted, answered, top=3).table
    assert by_z.name[0] == "L{}N{}".format(*ASKER)
    asked = fp.search(planted, planted.vocab.text([ASKED]), by="question", top=1).table
    assert asked.name[0] == "L{}N{}".format(*ASKER)
    assert asked.question_tokens[0].split()[0] == planted.vocab.show(ASKED)


def test_several_tokens_rank_by_the_weakest(pocket):
    words = [" basketball", " football"]
    both = fp.search(pocket, words, top=20).table
    each = [both["z of ␣basketball"], both["z of ␣football"]]
    assert both.z.tolist() == [min(pair) for pair in zip(*each, strict=True)]
    assert both.z.is_monotonic_decreasing
    alone = fp.search(pocket, " football", top=pocket.config.neurons).table.set_index("name").z
    assert each[1].tolist() == pytest.approx(alone[both.name].tolist(), rel=1e-5)
    against = fp.search(pocket, words, top=20, away=True).table
    assert (
        against.z.tolist() == against[["z of ␣basketball", "z of ␣football"]].max(axis=1).tolist()
    )
    assert both.attrs["provenance"]["tokens"] == ["␣basketball", "␣football"]


def test_an_answer_the_same_to_all_tokens_has_no_z(planted):
    found = fp.search(planted, " basketball", top=planted.config.neurons).table.set_index("name")
    assert found.z["L2N6"] == found.cosine["L2N6"] == 0
    # Only rounding is left of a constant answer, and rounding has no z either.
    assert found["dot"]["L2N7"] != 0
    assert found.z["L2N7"] == 0


def test_layers_limit_the_search(tiny):
    found = fp.search(tiny, " basketball", layers="1", top=52).table
    assert set(found.layer) == {1}
    whole = fp.search(tiny, " basketball", top=156).table
    assert found.name.tolist() == whole[whole.layer == 1].name.tolist()


def test_the_best_neurons_for_basketball_promote_it(pocket):
    upper = range(pocket.config.layers // 2, pocket.config.layers)
    found = fp.search(pocket, " basketball", layers=list(upper), top=10).table
    promoting = [
        "␣basketball" in fp.read(pocket, name).answer.promotes(10).token.tolist()
        for name in found.name
    ]
    assert sum(promoting) > 5


def test_searches_that_are_wrong(tiny):
    with pytest.raises(
        TokenNotFound, match=r'" basket ball" is \d tokens here: .*a search needs one'
    ) as caught:
        fp.search(tiny, " basket ball")
    assert '" basketball"' in caught.value.remedy
    with pytest.raises(TokenNotFound, match="no token is named"):
        fp.search(tiny, [])
    with pytest.raises(TokenNotFound, match='"" is not a token'):
        fp.search(tiny, "")
    with pytest.raises(OptionRefused, match="rank = 'size': it must be z, cosine or dot"):
        fp.search(tiny, " basketball", rank="size")
    with pytest.raises(OptionRefused, match="by = 'key': it must be answer, question or gate"):
        fp.search(tiny, " basketball", by="key")
    with pytest.raises(OptionRefused, match=r"top = 53: there are 52 neurons\."):
        fp.search(tiny, " basketball", layers="0", top=53)


@pytest.mark.parametrize(
    ("options", "title", "column"),
    [
        ({}, "neurons that push toward ␣the ␣basketball", "promotes"),
        ({"away": True}, "neurons that push against ␣the ␣basketball", "suppresses"),
        ({"by": "question"}, "neurons whose question is opened by ␣the ␣basketball", "question_tokens"),
    ],
)  # fmt: skip
def test_a_search_knows_what_it_was_asked(tiny, options, title, column):
    first = fp.search(
        tiny, [" the", " basketball"], rank="dot", top=7, among=["L0", "L2"], **options
    )
    found = fp.Search(first.table, first.provenance)
    assert found.title == title
    assert found.tokens == ("␣the", "␣basketball")
    assert (found.rank, found.by) == ("dot", options.get("by", "answer"))
    assert found.own_tokens == column
    assert column in found.table
    assert found.provenance.settings["among"] == 104
    assert [row.name for row in found] == found.table.name.tolist()
    assert len(found) == 7
    assert found.top(2).name.tolist() == found.table.name.tolist()[:2]
    with pytest.raises(OptionRefused, match=r"top = 8: there are 7 neurons found\."):
        found.top(8)


def test_a_search_among_neurons_named_keeps_their_order(pocket):
    everyone = fp.search(pocket, " basketball", top=pocket.config.neurons)
    chosen = everyone.table.name.tolist()[5:500:50]
    found = fp.search(pocket, " basketball", top=4, among=reversed(chosen))
    assert found.table.name.tolist() == chosen[:4]
    assert len(fp.search(pocket, " basketball", top=10, among=["L2N1", "L2N3"], layers="2")) == 2
    with pytest.raises(OptionRefused, match="no neuron of these layers"):
        fp.search(pocket, " basketball", among=["L2N1"], layers="3")
