"""Scores of facts: batched is one by one, known is known, and planted neurons are found."""

import json

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import AccountNotClosed, DataRefused, OptionRefused
from ffnprobe.facts import recall
from ffnprobe.facts import scores as scoring
from ffnprobe.facts.rows import FactRow
from ffnprobe.models import pocket as own
from tests.builders import TINY, random_weights, write_model
from tests.conftest import JORDAN
from tests.tracing.oracles import logits_of

# Two lengths, answers of one to three pieces, two relations, one prompt with two true answers.
ROWS = [
    FactRow("the cat sat on", " the", "place", "cat"),
    FactRow("the dog ran to", " basketball court", "place", "dog"),
    FactRow("the dog ran to", " the mat", "place", "dog"),
    FactRow("the cat ran to the", " Paris", "place", "cat"),
    FactRow("the mat and the", " basketball court in", "thing", "mat"),
    FactRow("the court in the", " football", "thing", "court"),
    FactRow("dog", " cat", "alone", "dog"),
]
FIGURES = ["rank", "log_probability", "logit", "mlp", "attention", "margin"]


@pytest.fixture(scope="module")
def scores(tiny: fp.Model) -> fp.Scores:
    return fp.score(tiny, ROWS, top=20)


@pytest.mark.parametrize(
    "name", ["tiny", "pocket", pytest.param("small", marks=pytest.mark.shared)]
)
def test_every_number_is_attributes(request, name):
    model = request.getfixturevalue(name)
    rows = ROWS if name == "tiny" else ROWS[:4]
    scores = fp.score(model, rows, top=20)
    for row, fact, numbers, pushes in zip(
        rows, scores.table.itertuples(), scores.neurons, scores.pushes, strict=True
    ):
        single = fp.attribute(fp.run(model, row.prompt), row.answer)
        assert fact.pieces == len(single.pieces)
        assert fact.log_probability == pytest.approx(single.log_probability, abs=1e-4)
        assert fact.rank == max(piece.rank for piece in single.pieces)
        assert fact.known == (fact.rank == 1)
        assert fact.logit == pytest.approx(sum(piece.logit for piece in single.pieces), abs=1e-3)
        parts = [piece.by_part() for piece in single.pieces]
        kinds = {"mlp": ["neurons", "MLP bias"], "attention": ["head", "attention bias"]}
        for column, kind in kinds.items():
            wanted = sum(part.push[part.kind.isin(kind)].sum() for part in parts)
            assert getattr(fact, column) == pytest.approx(wanted, abs=1e-3)
            above = sum(p.logit - p.account.constants["vocabulary mean"] for p in single.pieces)
            assert getattr(fact, f"{column}_share") == pytest.approx(wanted / above, rel=1e-2)
        total = sum(piece.values for piece in single.pieces).ravel()
        torch.testing.assert_close(pushes, total[numbers], atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(
            pushes, total.sort(descending=True).values[:20], atol=1e-4, rtol=1e-3
        )
        assert fact.neurons.split()[0] == scores.top().name[20 * fact.Index]
    assert model.is_unchanged()


def test_batched_equals_one_by_one(tiny, scores):
    for number, row in enumerate(ROWS):
        alone = fp.score(tiny, [row], top=20)
        for column in FIGURES[:-1]:
            assert alone.table[column][0] == pytest.approx(scores.table[column][number], abs=1e-5)
        torch.testing.assert_close(alone.pushes[0], scores.pushes[number], atol=1e-6, rtol=1e-5)


def test_log_probabilities_and_ranks_are_hugging_faces(tiny, scores):
    for row, fact in zip(ROWS, scores.table.itertuples(), strict=True):
        prompt, pieces = tiny.vocab.ids(row.prompt), tiny.vocab.ids(row.answer)
        logits = logits_of(tiny, [tiny.vocab.bos, *prompt, *pieces])[len(prompt) :][: len(pieces)]
        logs = logits.double().log_softmax(-1)[range(len(pieces)), pieces]
        assert fact.log_probability == pytest.approx(float(logs.sum()), abs=1e-4)
        ranks = [
            int((line > line[piece]).sum()) + 1 for line, piece in zip(logits, pieces, strict=True)
        ]
        assert fact.rank == max(ranks)


def test_the_margin_is_to_the_best_other_answer_of_the_relation(tiny, scores):
    for fact in scores.table.itertuples():
        row = ROWS[fact.Index]
        true = {r.answer for r in ROWS if (r.relation, r.prompt) == (row.relation, row.prompt)}
        others = {r.answer for r in ROWS if r.relation == row.relation} - true
        first = {answer: tiny.vocab.ids(answer)[0] for answer in others | {row.answer}}
        rivals = {token for answer, token in first.items() if answer in others}
        rivals -= {tiny.vocab.ids(answer)[0] for answer in true}
        if not rivals:
            assert fact.rival is None
            assert fact.margin != fact.margin
            continue
        logits = fp.run(tiny, row.prompt).logits[-1]
        best = max(rivals, key=lambda token: float(logits[token]))
        assert fact.rival == tiny.vocab.show(best)
        assert fact.margin == pytest.approx(
            float(logits[first[row.answer]] - logits[best]), abs=1e-4
        )


def test_pocket_knows_what_its_card_says(pocket):
    """Every (fact, template) pair, those kept out of training included."""
    scores = fp.score(pocket, "pocket", templates="all")
    figures = json.loads((own.FOLDER / "figures.json").read_text())
    assert len(scores) == figures["prompts"]
    assert round(scores.share_known, 4) == figures["recall"]
    held_out = [prompt.is_held_out for prompt in own.prompts()]
    assert round(scores.table.known[held_out].mean(), 4) == figures["recall_held_out"]
    jordan = scores.table[scores.table.prompt == JORDAN].iloc[0]
    assert bool(jordan.known)
    # Recalled at the subject, its answer reaches the last token through attention.
    assert jordan.attention_share > jordan.mlp_share
    assert jordan.margin > 5


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> fp.Model:
    """A model whose stream is the last token alone, with one neuron for each fact in layer 1."""
    weights = {name: torch.zeros_like(t) for name, t in random_weights(TINY).items()}
    embedding = torch.randn(TINY.vocab, TINY.d_model, generator=torch.Generator().manual_seed(3))
    weights["wte.weight"] = embedding
    for name in weights:
        if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")):
            weights[name] = torch.ones(TINY.d_model)
    folder = write_model(tmp_path_factory.mktemp("planted"), TINY, weights)
    vocab = fp.load(folder, device="cpu").vocab
    for order, (subject, answer) in enumerate(PLANTED):
        asked, given = (vocab.one(text) for text in (subject, answer))
        seen = torch.nn.functional.layer_norm(embedding[asked], (TINY.d_model,))
        weights["h.1.mlp.c_fc.weight"][:, 7 + 3 * order] = 2 * seen / seen.norm()
        weights["h.1.mlp.c_fc.bias"][7 + 3 * order] = -8
        weights["h.1.mlp.c_proj.weight"][7 + 3 * order] = 5 * embedding[given]
    return fp.load(write_model(tmp_path_factory.mktemp("planted"), TINY, weights), device="cpu")


PLANTED = [(" cat", " Paris"), (" and", " basketball"), (" mat", " in"), (" ran", " the")]


def test_one_planted_neuron_a_fact_is_found_first(planted):
    rows = [FactRow(f"the{subject}", answer, "planted") for subject, answer in PLANTED]
    scores = fp.score(planted, rows, top=3, effects=True)
    names = [f"L1N{7 + 3 * order}" for order in range(len(PLANTED))]
    assert [names_of.split()[0] for names_of in scores.table.neurons] == names
    assert [names_of.split()[0] for names_of in scores.table.effect_neurons] == names
    assert scores.share_known == 1.0
    assert (scores.table.margin > 1).all()
    assert list(scores.top_effects().columns) == ["fact", "name", "layer", "neuron", "effect"]


def test_effects_are_ablates(tiny):
    scores = fp.score(tiny, ROWS[:3], effects=True, top=5, replace="zero")
    for row, numbers, found in zip(ROWS, scores.effect_neurons, scores.effects, strict=False):
        exact = fp.ablate(fp.run(tiny, row.prompt), row.answer, convention="centred").values.ravel()
        torch.testing.assert_close(found, exact[numbers], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(
            found, exact.sort(descending=True).values[:5], atol=1e-5, rtol=1e-4
        )
    assert fp.score(tiny, ROWS[:3]).top_effects() is None
    assert scores.provenance.settings["effects"] == {"replace": "zero"}


def test_an_account_that_does_not_close_gives_no_number(tiny, monkeypatch):
    written = recall.write_heads
    monkeypatch.setattr(recall, "write_heads", lambda *mixes: torch.zeros_like(written(*mixes)))
    with pytest.raises(AccountNotClosed, match="the logit of ␣the"):
        fp.score(tiny, ROWS[:1])


def test_an_interrupted_table_goes_on_where_it_stopped(tiny, scores, tmp_path, monkeypatch):
    folder, asked = tmp_path / "scores.csv.partial", []
    monkeypatch.setattr(scoring, "FACTS_AT_ONCE", 2)
    plain = scoring.recall
    monkeypatch.setattr(scoring, "recall", lambda *a, **k: asked.append(1) or plain(*a, **k))
    whole = fp.score(tiny, ROWS, top=20)
    batches, done = len(asked), []

    def interrupt(now: int, total: int) -> None:
        done.append(now)
        if len(done) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fp.score(tiny, ROWS, top=20, store=folder, progress=interrupt)
    asked.clear()
    resumed = fp.score(tiny, ROWS, top=20, store=folder)
    assert 0 < len(asked) == batches - 2
    assert resumed.table.equals(whole.table)
    assert torch.equal(resumed.neurons, whole.neurons)
    assert torch.equal(resumed.pushes, whole.pushes)
    for rows, options, said in [
        (ROWS[:-1], {"top": 20}, "is a score of other facts"),
        (ROWS, {"top": 19}, "was made with top=20, not 19"),
        (ROWS, {"top": 20, "bos": False}, "is a score of other facts"),
    ]:
        with pytest.raises(DataRefused, match=said):
            fp.score(tiny, rows, store=folder, **options)


def test_progress_counts_the_facts(tiny):
    seen: list[tuple[int, int]] = []
    fp.score(tiny, ROWS, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(ROWS), len(ROWS))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_bos_is_put_in_front_unless_told_not_to(tiny):
    without = fp.score(tiny, ROWS[:1], bos=False)
    assert without.provenance.bos is False
    trace = fp.run(tiny, ROWS[0].prompt, bos=False)
    assert without.table.log_probability[0] == pytest.approx(
        fp.attribute(trace, " the").log_probability, abs=1e-5
    )


def test_scores_say_where_they_come_from(scores):
    assert scores.provenance.convention == "centred"
    assert scores.provenance.settings == {
        "facts": "rows", "format": "FactRow", "rows": 7, "templates": "first",
    }  # fmt: skip
    assert scores.table.attrs["provenance"] == scores.provenance.as_dict()
    assert list(scores.tables()) == ["facts", "neurons"]
    assert "knows" in repr(scores)
    assert "L1N" in scores._repr_html_()


def test_bad_options_are_refused_and_no_fact_is_no_statistic(tiny):
    with pytest.raises(OptionRefused, match="top = 0"):
        fp.score(tiny, ROWS, top=0)
    with pytest.raises(OptionRefused, match="replace = 'nothing': it must be zero or mean"):
        fp.score(tiny, ROWS, effects=True, replace="nothing")
    empty = fp.score(tiny, [FactRow("the " * 40, " cat")])
    assert (len(empty), len(empty.problems)) == (0, 1)
    with pytest.raises(DataRefused, match="no fact could be scored"):
        empty.by_relation()


def test_it_says_where_its_neurons_were_looked_for(pocket):
    """On pocket the last token's neurons push next to nothing: what is listed must say what it is."""
    scores = fp.score(pocket, [FactRow(JORDAN, " basketball", "sport", "Michael Jordan")])
    assert scores.table.attention_share[0] > 0.9
    assert "where the answer is predicted (the last token)" in scores.caption
    assert "through attention: paths, explain" in scores.caption
    assert scores.caption in " ".join(str(scores).split())
    found = fp.paths(fp.run(pocket, JORDAN), " basketball").by_neuron(3)
    assert set(found.token) == {"␣Jordan"}
