"""What other rooms give the explorer: turns, growing explanations, the stream after a layer."""

import threading

import pytest

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from tests.conftest import JORDAN


def test_runs_in_two_threads_see_only_their_own_hooks(pocket):
    """Without turns, a steered run would change a plain one beside it."""
    plain = fp.run(pocket, JORDAN).logits
    same = []

    def steer():
        for _ in range(6):
            fp.steer(pocket, JORDAN, {"L0": 5.0})

    def run():
        same.extend(fp.run(pocket, JORDAN).logits.equal(plain) for _ in range(12))

    threads = [threading.Thread(target=work) for work in (steer, run, run)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 24


def test_an_explanation_is_told_as_it_grows_and_ends_the_same(pocket):
    counted = []
    *seen, explanation = fp.explain_stepwise(
        pocket, JORDAN, " basketball", top=4,
        progress=lambda done, total: counted.append((done, total)),
    )  # fmt: skip
    whole = fp.explain(pocket, JORDAN, " basketball", top=4)
    for name, table in whole.tables().items():
        assert explanation.tables()[name].equals(table), name
    assert explanation.provenance == whole.provenance
    assert "effect" not in seen[0].neurons
    assert seen[0].map is None
    assert seen[1].map.equals(whole.map)
    known = [int(s.neurons.effect.notna().sum()) for s in seen[2:]]
    assert len(known) == pocket.config.layers - 1
    assert known == sorted(known)
    assert int(explanation.neurons.effect.notna().sum()) == len(explanation.neurons)
    assert counted[-1] == (pocket.config.neurons, pocket.config.neurons)
    assert [done for done, _ in counted] == sorted(done for done, _ in counted)


def test_the_stream_is_read_after_a_layer_as_the_lens_reads_it(pocket, jordan):
    last = jordan.predictions(5)
    assert jordan.predictions(5, after="L5").token.tolist() == last.token.tolist()
    for position in (0, 3, -1):
        lens = fp.lens(jordan, position=position).table
        rows = lens[lens.part != "attention"].reset_index(drop=True)
        for order, after in enumerate(["embedding", "L0", "L3", "L5"]):
            row = rows.iloc[[0, 1, 4, 6][order]]
            found = jordan.predictions(1, position=position, after=after)
            assert found.token[0] == row.token
            assert found.probability[0] == pytest.approx(row.token_probability, rel=1e-5)
    assert jordan.predictions(1, after="L2").attrs["provenance"]["settings"] == {"after": "L2"}  # fmt: skip
    with pytest.raises(OptionRefused, match='not read after "L6"'):
        jordan.predictions(1, after="L6")


def test_a_search_among_neurons_named_keeps_their_order(pocket):
    everyone = fp.search(pocket, " basketball", k=pocket.config.neurons)
    chosen = everyone.table.name.tolist()[5:500:50]
    found = fp.search(pocket, " basketball", k=4, among=reversed(chosen))
    assert found.table.name.tolist() == chosen[:4]
    assert len(fp.search(pocket, " basketball", k=10, among=["L2N1", "L2N3"], layers="2")) == 2
    with pytest.raises(OptionRefused, match="no neuron of these layers"):
        fp.search(pocket, " basketball", among=["L2N1"], layers="3")
