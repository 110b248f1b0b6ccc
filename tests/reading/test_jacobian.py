"""The Jacobian lens against TransformerLens's, finite differences, and itself on demand."""

from dataclasses import replace

import pytest
import torch

import ffnprobe as fp
from ffnprobe.corpora.lens_fitting import _cut
from ffnprobe.corpora.passages import ScanSettings
from ffnprobe.corpora.text_sources import find_texts
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.models.forward import embed
from ffnprobe.models.loading import change_rows
from ffnprobe.models.step import normalise, step
from ffnprobe.reading import jacobian
from ffnprobe.reading.spectrum import compare_tokens
from ffnprobe.recipes import write_recipe
from tests.cli.runner import ffnprobe
from tests.families.builders import write_family

TEXTS = {
    "one": "the cat sat on the mat and the dog ran to basketball " * 2,
    "two": "the dog sat " * 9,
}
FAMILIES = ("gpt2", "gpt_neox", "llama", "gemma3_text")
SKIP = 2


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory):
    return fp.load(write_family(tmp_path_factory.mktemp("lens"), request.param), device="cpu")


def passages(model):
    settings = ScanSettings(context=min(64, model.config.positions), bos=model.vocab.puts_bos(None), top=1)  # fmt: skip
    return list(_cut(model, find_texts(TEXTS), settings, SKIP))


def look(model, stream, first, at):
    """Return the stream after the last layer, and what each layer's questions are put to."""
    seen = []
    hooks = [{"before_mlp": lambda rows: seen.append(normalise(model, rows))}]
    for layer in range(first, model.config.layers):
        (stream,) = step(model, layer, [stream], [at], hooks=hooks)
    return stream, seen


def test_it_is_what_finite_differences_give(model):
    lens = fp.fit_lens(model, TEXTS, passages=1, skip=SKIP)
    model = replace(model, weights={n: w.double() for n, w in model.weights.items()})
    ids = passages(model)[0]
    counted, at = list(range(SKIP, len(ids) - 1)), torch.arange(len(ids))[None]
    start, layer, size = embed(model, torch.tensor([ids])).double(), 1, 1e-6
    direction = torch.randn(
        model.config.d_model, generator=torch.Generator().manual_seed(0)
    ).double()

    def moved(stream, first):
        ends = []
        for sign in (1, -1):
            shifted = stream.clone()
            shifted[0, counted] += sign * size * direction
            final, seen = look(model, shifted, first, at)
            ends.append((final[0, counted], seen[layer][0, counted] if first == 0 else None))
        (up, up_seen), (down, down_seen) = ends
        seen = None if up_seen is None else ((up_seen - down_seen) / (2 * size)).mean(0)
        return ((up - down) / (2 * size)).mean(0), seen

    _, asked = moved(start, 0)
    torch.testing.assert_close(
        lens.questions[layer].double() @ direction, asked, rtol=1e-3, atol=1e-3
    )
    stream = start
    for number in range(layer + 1):
        (stream,) = step(model, number, [stream], [at])
    final, _ = moved(stream, layer + 1)
    torch.testing.assert_close(
        lens.answers[layer].double() @ direction, final, rtol=1e-3, atol=1e-3
    )


def test_on_demand_gives_the_same_numbers(model, monkeypatch):
    lens = fp.fit_lens(model, TEXTS, passages=9, skip=SKIP)
    monkeypatch.setattr(jacobian, "SKIPPED", SKIP)
    demanded = jacobian.OnDemand(model, tuple(passages(model)))
    assert len(demanded.passages) == lens.passages > 1
    for layer in range(model.config.layers):
        for by in ("answer", "question"):
            rows = (model.answers_of(layer) if by == "answer" else model.questions[layer])[:7]
            torch.testing.assert_close(
                demanded.carry(layer, rows, by=by), lens.carry(layer, rows, by=by), rtol=1e-3, atol=1e-4
            )  # fmt: skip


def fit_theirs(model, passages):
    """Fit TransformerLens's own lens: its prompts are texts, so its estimator is given our tokens."""
    from transformer_lens.tools.analysis import jacobian_lens as theirs

    bridge, layers = model.bridge, list(range(model.config.layers - 1))
    with theirs._frozen_parameters(bridge):
        found = [
            theirs._jacobian_for_prompt(
                bridge, torch.tensor([ids]), source_layers=layers, dim_batch=8,
                skip_first_positions=SKIP, backward_provider=theirs._ordinary_vjp,
            )
            for ids in passages
        ]  # fmt: skip
    means = {layer: torch.stack([one[layer] for one in found]).mean(0) for layer in layers}
    return theirs.JacobianLens(means, n_prompts=len(passages), d_model=model.config.d_model)


def test_it_is_transformer_lens_s_and_the_published_format_goes_both_ways(tiny, tmp_path):
    theirs = fit_theirs(tiny, passages(tiny))
    ours = fp.fit_lens(tiny, TEXTS, passages=9, skip=SKIP)
    assert ours.passages == theirs.n_prompts > 1
    for layer, matrix in theirs.jacobians.items():
        torch.testing.assert_close(ours.answers[layer], matrix, rtol=1e-4, atol=1e-4)
    ours.publish(tmp_path / "ours.pt")
    back = type(theirs).load(str(tmp_path / "ours.pt"))
    assert (back.source_layers, back.n_prompts) == (list(ours.answers), ours.passages)
    torch.testing.assert_close(back.jacobians[0], ours.answers[0].half().float())
    again = fp.use_lens(tiny, tmp_path / "ours.pt").lens
    torch.testing.assert_close(again.questions[1], ours.questions[1].half().float())
    theirs.save(str(tmp_path / "theirs.pt"))
    read = fp.use_lens(tiny, tmp_path / "theirs.pt").lens
    torch.testing.assert_close(read.answers[0], theirs.jacobians[0].half().float())
    assert not read.questions


def test_a_fit_that_is_stopped_resumes_and_ends_the_same(tiny, tmp_path):
    whole = fp.fit_lens(tiny, TEXTS, store=tmp_path / "whole", passages=3, skip=SKIP)
    fp.fit_lens(tiny, TEXTS, store=tmp_path / "parts", passages=1, skip=SKIP)
    done = []
    fp.fit_lens(tiny, TEXTS, store=tmp_path / "parts", passages=3, skip=SKIP, progress=lambda *at: done.append(at))  # fmt: skip
    d_model = tiny.config.d_model
    assert done[0][0] > 2 * d_model
    assert done[-1] == (6 * d_model, 6 * d_model)
    for name in ("store.json", "jacobians.safetensors"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    opened = fp.use_lens(tiny, tmp_path / "parts").lens
    assert torch.equal(opened.answers[1], whole.answers[1])


def test_token_lists_and_search_are_read_through_it(tiny):
    lens = fp.fit_lens(tiny, TEXTS, passages=2, skip=SKIP)
    model = fp.use_lens(tiny, lens)
    answer = lens.answers[0] @ tiny.answers_of(0)[7]
    logits = tiny.unembedding @ (answer - answer.mean())
    token = int((logits - logits.mean()).argmax())
    reading = fp.read(model, "L0N7")
    first = reading.answer.promotes(1).iloc[0]
    assert first.id == token
    assert first.value == pytest.approx(float(logits.max() - logits.mean()), rel=1e-3)
    asked = tiny.embedding @ (tiny.questions[0, 7] @ lens.questions[0])
    assert reading.question.top(1).id[0] == int(asked.argmax())
    assert fp.read(tiny, "L0N7").answer.promotes(1).id[0] != token
    shown = tiny.vocab.show(token)
    trace = fp.run(model, "the cat sat")
    assert fp.attribute(trace, " the").top(None).set_index("name").answer_tokens["L0N7"].split(" ")[0] in (
        shown, tiny.vocab.show(int(logits.argmin()))
    )  # fmt: skip
    compared = compare_tokens(model, [token], by="answer", layers=[0])["z"][0, 0, 7]
    z = (logits - logits.mean()) / logits.std(correction=0)
    assert float(compared) == pytest.approx(float(z[token]), rel=1e-3)
    assert reading.provenance.settings["lens"] == {"from": "", "passages": 2}
    surveyed = fp.survey(model, layers="0").table.set_index("name")
    assert surveyed.promotes["L0N7"].split(" ")[0] == shown


def test_the_last_layer_needs_no_lens_and_pushes_do_not_change(tiny):
    model = fp.use_lens(tiny, fp.fit_lens(tiny, TEXTS, passages=1, skip=SKIP))
    last = f"L{tiny.config.layers - 1}N3"
    pairs = [fp.read(each, last).answer.promotes(None) for each in (tiny, model)]
    assert pairs[0].equals(pairs[1])
    traces = [fp.run(each, "the cat sat on") for each in (tiny, model)]
    plain, through = (fp.attribute(each, " the").top(None) for each in traces)
    assert plain.push.equals(through.push)


def test_explain_reads_its_rows_on_demand(tiny):
    found = fp.explain(fp.use_lens(tiny, "on-demand"), "the cat sat on", " the")
    plain = fp.explain(tiny, "the cat sat on", " the")
    assert found.neurons.effect.equals(plain.neurons.effect)
    assert found.provenance.settings["lens"] == {"from": "on-demand", "passages": 2}
    assert not found.neurons.answer_tokens.equals(plain.neurons.answer_tokens)


def test_what_is_no_lens_of_this_model_is_refused(tiny, pocket, tmp_path):
    lens = fp.fit_lens(tiny, TEXTS, passages=1, skip=SKIP)
    with pytest.raises(DataRefused, match="the lens is of a model with another"):
        fp.use_lens(pocket, lens)
    with pytest.raises(DataRefused, match="other layers"):
        fp.use_lens(tiny, replace(lens, answers={0: lens.answers[0]}))
    lens.publish(tmp_path / "lens.pt")
    with pytest.raises(
        DataRefused, match=r"lens\.pt is a lens of 2 layers of 35 numbers; pocket has 192"
    ):
        fp.use_lens(pocket, tmp_path / "lens.pt")
    (tmp_path / "bad.pt").write_bytes(b"no lens")
    with pytest.raises(DataRefused, match=r"bad\.pt is not a Jacobian lens"):
        fp.use_lens(tiny, tmp_path / "bad.pt")
    with pytest.raises(DataRefused, match="there is no lens"):
        fp.use_lens(tiny, tmp_path / "gone")
    with pytest.raises(OptionRefused, match="too many to read through the layers on demand"):
        fp.search(fp.use_lens(pocket, "on-demand"), " golf")
    with pytest.raises(DataRefused, match="no passage is longer than the 40 positions"):
        fp.fit_lens(tiny, TEXTS, skip=40)


def test_an_interrupted_fit_keeps_whole_passages(tiny, tmp_path):
    d_model = tiny.config.d_model

    def interrupt(done, total):
        if done > 3 * d_model:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="1 of 3 passages are kept in"):
        fp.fit_lens(tiny, TEXTS, store=tmp_path / "lens", passages=3, skip=SKIP, progress=interrupt)
    whole = fp.fit_lens(tiny, TEXTS, passages=3, skip=SKIP)
    again = fp.fit_lens(tiny, TEXTS, store=tmp_path / "lens", passages=3, skip=SKIP)
    assert torch.equal(again.questions[2], whole.questions[2])


def test_the_command_fits_and_reads_by_it(tmp_path):
    (tmp_path / "text.txt").write_text("Tiger Woods plays golf . " * 4)
    store = tmp_path / "lens"
    said = ffnprobe("fit-lens", tmp_path / "text.txt", "--skip", "1", "--store", store).stdout
    assert "Jacobian lens of pocket over 1 passage\n" in said
    card = ffnprobe("read", "L3N361", "--lens", store).stdout
    assert "lists: question tokens hold " in card
    assert "of 10 (another neuron's " in card
    assert "are a hint only" not in card
    plain = ffnprobe("read", "L3N361").stdout
    assert "lists:" not in plain
    assert "are a hint only" in plain


def test_pocket_s_own_lens_holds_more_than_none(pocket, tiny):
    own = fp.use_lens(pocket, "own")
    names = [f"L{layer}N{n}" for layer in (2, 3, 4) for n in range(0, 768, 64)]
    plain, through = (fp.check_lists(each, names).table.groupby("list").holds.mean() for each in (pocket, own))  # fmt: skip
    assert through["question_tokens"] > plain["question_tokens"] + 1
    assert through["promotes"] > plain["promotes"]
    with pytest.raises(DataRefused, match="comes without a lens"):
        fp.use_lens(tiny, "own")


def test_what_was_read_through_a_lens_is_got_again_through_it(pocket, tiny, tmp_path):
    own = fp.use_lens(pocket, "own")
    recipe = write_recipe(fp.read(own, "L2N225"))
    assert recipe.command == "ffnprobe read --model pocket --lens=own -- L2N225"
    assert "model = fp.use_lens(model, 'own')" in recipe.python
    fitted = fp.fit_lens(tiny, TEXTS, passages=1, skip=SKIP)
    assert write_recipe(fp.read(fp.use_lens(tiny, fitted), "L0N1")).command is None
    kept = fp.fit_lens(tiny, TEXTS, passages=1, skip=SKIP, store=tmp_path / "lens")
    assert (
        f"--lens={tmp_path / 'lens'}"
        in write_recipe(fp.read(fp.use_lens(tiny, kept), "L0N1")).command
    )
    with pytest.raises(OptionRefused, match="a lens is in this process alone"):
        fp.survey(own, engine="ray")
    changed = change_rows(own, {2: torch.zeros_like(own.answers_of(2)) + 0.01})
    assert changed.lens is None
