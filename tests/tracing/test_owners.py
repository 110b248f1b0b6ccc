"""Attention's part given back to its owners: it closes, and one step of it is what `paths` says."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.names import NeuronId
from ffnprobe.tracing.attention import find_owners


@pytest.mark.parametrize("answer", [280, 17, 3])
def test_owners_add_up_to_the_logit(tiny_trace, answer):
    owners = find_owners(fp.attribute(tiny_trace, answer))
    assert owners.total == pytest.approx(owners.pushes.logit, abs=1e-3)
    heads = float(owners.pushes.account.heads.sum())
    assert abs(heads) > 1e-2


def test_all_steps_of_paths_are_the_owners(tiny_trace):
    owners = find_owners(fp.attribute(tiny_trace, 280))
    paths = fp.paths(tiny_trace, 280, depth=tiny_trace.model.config.layers)
    assert torch.allclose(owners.through, paths.neurons, atol=1e-5)
    assert paths.neurons.abs().max() > 1e-3


def test_the_head_named_carried_most(tiny_trace):
    owners = find_owners(fp.attribute(tiny_trace, 280))
    source = (NeuronId(0, 5), 2)
    ((head, carried),) = owners.name_heads([source])
    carriers = fp.paths(tiny_trace, 280, depth=3).carriers("L0N5", 2)
    total = carriers.groupby("part").push.sum()
    assert total.sum() == pytest.approx(float(owners.through[0, 2, 5]), abs=1e-5)
    towards = total * (1 if total.sum() >= 0 else -1)
    assert head == towards.idxmax()
    assert carried == pytest.approx(total[head], abs=1e-5)


def test_a_neuron_that_no_head_reads_has_no_head(tiny_trace):
    owners = find_owners(fp.attribute(tiny_trace, 280))
    assert owners.name_heads([(NeuronId(2, 5), 2)]) == [("", 0.0)]
    assert owners.name_heads([]) == []
