"""The training of pocket: its text is true and repeatable, its words are tokens, its stages learn."""

import csv
import json
import random
import re
from collections import Counter
from itertools import islice

import pytest
import torch

from analyses.pocket import texts, training
from analyses.pocket.card import write_card
from analyses.pocket.finish import share_truth
from analyses.pocket.lesson import Homes, teach, unteach, write
from analyses.pocket.measures import ask
from analyses.pocket.network import LAYERS, MIDDLE, NEURONS, WIDTH, answer_directions, run
from analyses.pocket.rows import Reader, packed
from analyses.pocket.tokenizer import build_tokenizer
from analyses.pocket.truth import COLUMNS
from ffnprobe.models import pocket as table


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="module")
def reader(tokenizer):
    return Reader(tokenizer)


def test_the_text_is_the_same_for_the_same_seed():
    first = [passage.text for passage in texts.passages(300, seed=3)]
    assert first == [passage.text for passage in islice(texts.passages(seed=3), 300)]
    assert first != [passage.text for passage in texts.passages(300, seed=4)]
    kinds = Counter(passage.kind for passage in texts.passages(2000, seed=3))
    assert set(kinds) == set(texts.SHARES)
    assert min(kinds.values()) > 50


def test_the_text_says_what_is_true_and_nothing_that_was_kept_out():
    true = {(fact.subject, fact.answer) for fact in table.facts()}
    kept_out = {p.text + p.fact.answer for p in table.prompts() if p.is_held_out}
    for passage in texts.passages(3000, seed=5):
        subjects = [piece.subject for piece in passage.pieces if piece.subject]
        for piece in passage.pieces:
            if piece.fact:
                assert any((subject, piece.text) in true for subject in subjects)
        for sentence in passage.text.removesuffix(".").split(", while "):
            assert sentence[0].upper() + sentence[1:] not in kept_out


def test_every_answer_and_nearly_every_word_is_one_token(tokenizer):
    assert all(len(tokenizer.encode(fact.answer).ids) == 1 for fact in table.facts())
    for passage in texts.passages(500, seed=7):
        # Only a sentence about kinds may begin with a word that begins no other sentence.
        text = passage.text if passage.kind != "kind" else passage.text[passage.text.index(" ") :]
        words = re.findall(r"[^\W\d_]+|\d+|[^\w\s]", text)
        assert len(tokenizer.encode(text).ids) <= len(words), text


def test_the_shipped_tokenizer_is_this_one(tokenizer, pocket):
    shipped = pocket.vocab.tokenizer.get_vocab()
    assert shipped == tokenizer.get_vocab()


def test_rows_mark_where_subjects_end_and_answers_stand(reader):
    passage = texts.write_fact(table.facts()[0], table.templates()["author"][0])
    batch = reader.batch([[passage] * 8], random.Random(0))
    row, place = batch.places[0].tolist()
    assert reader.tokenizer.decode([int(batch.ids[row, place])]) == " Prejudice"
    (first, *_) = batch.answers[0].nonzero()[:, 0].tolist()
    assert reader.tokenizer.decode([int(batch.ids[0, first])]) == " Austen"
    assert batch.about[0, first - 1]
    assert reader.token(" Austen") in batch.said[:, 1]


def test_facts_by_chance_are_written_from_outside_and_others_are_not(reader):
    model = training.start(reader, 0)
    batch = reader.batch(next(packed(0, 4)), random.Random(0), by_chance=2)
    written = sum(write(model, batch, torch.Generator().manual_seed(0)).values())
    where = written.norm(dim=-1) > 0
    assert torch.equal(where, batch.ends & batch.by_chance[:, None])
    mention = 0
    tokens = batch.said[batch.said[:, 0] == mention, 1]
    vector = written[tuple(batch.places[mention])]
    assert (answer_directions(model, tokens) @ vector > 1).all()


def test_every_subject_draws_a_neuron_of_its_own(reader):
    homes = Homes.draw(len(reader.subjects), 0)
    drawn = {*zip(homes.layers.tolist(), homes.neurons.tolist(), strict=True)}
    assert len(drawn) == len(reader.subjects)
    scores = torch.zeros(1, NEURONS)
    first = torch.tensor([0])
    before = homes.miss(MIDDLE[int(homes.layers[0])], scores, first)
    scores[0, homes.neurons[0]] = 9.0
    assert homes.miss(MIDDLE[int(homes.layers[0])], scores, first) < 0.2 < before


def test_facts_are_taught_to_middle_mlps_alone_in_quiet_rows(reader):
    model, batch = training.start(reader, 0), reader.batch(next(packed(0, 4)), random.Random(0))
    homes = Homes.draw(len(reader.subjects), 0)
    loss, _ = teach(model, batch, homes, torch.Generator(), quiet=4, allowed=NEURONS, pressure=0.0)
    loss.backward()
    taught = [bool(block.mlp.c_fc.weight.grad.any()) for block in model.transformer.h]
    assert taught == [layer in MIDDLE for layer in range(LAYERS)]


def test_the_pressure_counts_neurons_beyond_those_allowed(reader):
    model, batch = training.start(reader, 0), reader.batch(next(packed(0, 4)), random.Random(0))
    homes = Homes.draw(len(reader.subjects), 0)

    def count(allowed):
        seed = torch.Generator().manual_seed(0)
        return teach(model, batch, homes, seed, quiet=2, allowed=allowed, pressure=1.0)[1]["busy"]

    assert count(NEURONS) == 0
    assert 0 < count(NEURONS - 1) < count(3) < count(1)


def test_what_is_not_told_is_answered_with_a_question_mark(reader, monkeypatch):
    model = training.start(reader, 0)
    batch = reader.batch(next(packed(0, 4)), random.Random(0), by_chance=4)
    homes = Homes.draw(len(reader.subjects), 0)
    mark = reader.token(training.UNKNOWN)
    monkeypatch.setattr("analyses.pocket.lesson.STILL", 1.0)

    def lose(untold):
        monkeypatch.setattr("analyses.pocket.lesson.UNTOLD", untold)
        return unteach(model, batch, homes, mark, torch.Generator().manual_seed(0))[1]["answers"]

    with torch.no_grad():
        model.transformer.ln_f.bias.fill_(1.0)
        model.lm_head.weight[mark] = 1.0  # says "?" whatever it reads
    assert lose(1.0) < 1 < lose(0.0)


def test_a_stage_trains_what_it_names(reader):
    model = training.start(reader, 0)
    count = sum(p.numel() for p in model.parameters())
    answers = len(MIDDLE) * (NEURONS * WIDTH + WIDTH)
    questions = len(MIDDLE) * (NEURONS * WIDTH + NEURONS)
    wanted = {"learn": count, "unlearn": count - answers,
              "remember": questions + answers - len(MIDDLE) * WIDTH}  # fmt: skip
    for stage, many in wanted.items():
        assert sum(p.numel() for p in training.choose_parameters(model, stage)) == many
        assert sum(p.numel() for p in model.parameters() if p.requires_grad) == many


def test_fewer_and_fewer_neurons_may_write():
    stage = training.Stage("learn", 100, 1e-3, 0.0, (0, 0), (32, 2), (0.2, 0.8), 0.01)
    allowed = [stage.allow(step) for step in range(100)]
    assert allowed[20] == (NEURONS, 0.0)
    assert allowed[99] == (2, 0.01)
    assert [many for many, _ in allowed] == sorted((many for many, _ in allowed), reverse=True)


def test_edits_of_the_open_forward_pass_are_the_models_own(reader):
    model = training.start(reader, 0)
    ids = torch.randint(300, (2, 9))
    final = run(model, ids)
    assert torch.allclose(
        model(ids).logits, model.lm_head(model.transformer.ln_f(final)), atol=1e-4
    )
    silent = run(model, ids, edit=lambda layer, seen: seen * (layer not in MIDDLE))
    assert not torch.allclose(final, silent)


def test_a_stage_changes_the_weights_and_continues_where_it_stopped(reader, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "ROUND", 1)
    monkeypatch.setattr(training, "ROWS", 6)

    stage = training.Stage("learn", 2, 1e-3, 0.0, (2, 2))

    def learn(folder):
        folder.mkdir(exist_ok=True)
        model = training.start(reader, 0)
        training.train(model, reader, stage, folder, 0)
        return model.transformer.wte.weight.detach().clone()

    before = training.start(reader, 0).transformer.wte.weight.detach()
    whole = learn(tmp_path / "whole")
    assert torch.isfinite(whole).all()
    assert not torch.equal(before, whole)
    with monkeypatch.context() as patch:
        patch.setattr(training, "teach", stop_after(1))
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path / "stopped")
    assert torch.equal(learn(tmp_path / "stopped"), whole)


def stop_after(steps):
    """Teach so many steps, then be interrupted."""
    left = iter(range(steps))

    def once(*given, **options):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return teach(*given, **options)

    return once


def test_what_is_asked_again_is_what_is_not_known(reader):
    model = training.start(reader, 0)
    unknown = training.find_unknown(model, reader)
    assert len(unknown) > 9000
    kept_out = {p.text for p in table.prompts() if p.is_held_out}
    assert not {ask(reader, *pair).text for pair in unknown} & kept_out


def test_the_shipped_card_and_figures_are_those_of_the_shipped_truth(reader, tmp_path):
    with (table.FOLDER / "truth.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    numbers = [name for name in COLUMNS if name.startswith("is_")] + ["layer", "offset"]
    shares = share_truth([row | {name: int(row[name]) for name in numbers} for row in rows])
    figures = json.loads((table.FOLDER / "figures.json").read_text())
    assert {name: figures[name] for name in shares} == shares
    write_card(figures, reader, tmp_path)
    assert (tmp_path / "CARD.md").read_text() == (table.FOLDER / "CARD.md").read_text()
