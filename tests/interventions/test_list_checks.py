"""Lists of tokens are checked by runs of our own making."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.models.forward import forward
from ffnprobe.tracing.runs import run
from tests.families.builders import write_family

TEXT = "the cat sat on the mat and the dog"


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def model(request, tmp_path_factory):
    return fp.load(write_family(tmp_path_factory.mktemp("checked"), request.param), device="cpu")


def test_a_question_s_tokens_are_put_into_the_text(model):
    ids, name = model.vocab.ids(TEXT), fp.NeuronId(1, 5)
    side = "gate" if model.config.is_gated else "question"
    lists = getattr(fp.read(model, str(name)), side).top(7).id.tolist()
    raised = []
    for back in (0, 4):
        place = len(ids) - 1 - back
        scores = []
        for token in (ids[place], *lists):
            trace = run(model, [*ids[:place], token, *ids[place + 1 :]])
            scores.append(float((trace.gate_scores if side == "gate" else trace.scores)[1, -1, 5]))
        raised.append(sum(score > scores[0] for score in scores[1:]))
    table = fp.check_lists(model, str(name), top=7, texts=[TEXT]).table
    row = table[table.list == f"{side}_tokens"].iloc[0]
    assert row.holds == pytest.approx(sum(raised) / 2)
    assert 0 < row.holds <= 7


def test_promoted_tokens_are_counted_with_the_neuron_at_its_highest(model):
    trace = run(model, model.vocab.ids(TEXT))
    highest = trace.activations[1, int(trace.has_bos) :].amax(dim=0)
    number = int((highest > 0).nonzero()[0])
    promoted = fp.read(model, f"L1N{number}").answer.promotes(7).id.tolist()

    def set_at_the_end(activations):
        changed = activations.clone()
        changed[0, -1, number] = highest[number]
        return changed

    logits = forward(model, torch.tensor([trace.ids]), {("activations", 1): set_at_the_end})
    before, after = (torch.log_softmax(each[-1], -1) for each in (trace.logits, logits[0]))
    table = fp.check_lists(model, f"L1N{number}", top=7, texts=[TEXT]).table
    holds = float(table[table.list == "promotes"].holds.iloc[0])
    assert holds == sum(bool(after[token] > before[token]) for token in promoted)


def test_one_neuron_is_compared_with_the_next_and_several_with_each_other(pocket):
    alone = fp.check_lists(pocket, "L3N361").table
    assert (alone.holds > alone.other).all()
    assert alone.name.tolist() == ["L3N361"] * 2
    both = fp.check_lists(pocket, ["L3N361", "L3N362"]).table
    assert both[both.name == "L3N361"].holds.tolist() == alone.holds.tolist()


def test_a_neuron_that_never_opens_is_not_judged(pocket):
    table = fp.check_lists(pocket, "L3N361", texts=["The capital of France is"]).table
    # Nor is the next one, closed as well, taken for what any neuron would do.
    assert table.loc[table.list == "promotes", ["holds", "other"]].isna().all(axis=None)


def test_a_text_without_tokens_is_refused(pocket):
    with pytest.raises(OptionRefused, match="no text has two tokens"):
        fp.check_lists(pocket, "L3N361", texts=["the"])
