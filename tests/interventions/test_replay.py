"""The replay is the model: any layer, any first position, any precision."""

from dataclasses import replace

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import AccountNotClosed
from ffnprobe.interventions.replay import Replay, read_answer
from tests.interventions.oracles import direct, in_float64


@pytest.mark.parametrize("layer", [0, 1, 2, 3])
@pytest.mark.parametrize("start", [0, 2, -1])
def test_clean_replay_gives_the_final_stream(tiny_trace: fp.Trace, layer: int, start: int) -> None:
    replay, start = Replay(tiny_trace), tiny_trace.at(start)
    final = replay.finish(replay.entering(layer, start=start)[None], layer=layer, start=start)
    assert torch.allclose(final[0], tiny_trace.final[start:], atol=2e-4)


def test_float64_is_exact(tiny_trace: fp.Trace) -> None:
    trace = in_float64(tiny_trace)
    assert torch.allclose(trace.logits.float(), tiny_trace.logits, atol=1e-3)
    replay = Replay(trace)
    generator = torch.Generator().manual_seed(1)
    steps = torch.randn(4, 3, 52, generator=generator, dtype=torch.float64)
    start = len(trace) - 3
    streams = replay.entering(1, start=start)[None].repeat(4, 1, 1)

    final = replay.finish(streams, layer=1, start=start, edit=lambda layer, a: a + layer * steps)
    for row in range(4):

        def change(layer: int, activations: torch.Tensor, row: int = row) -> torch.Tensor:
            return torch.cat([activations[:start], activations[start:] + layer * steps[row]])

        wanted = direct(trace.model, list(trace.ids), change)["final"][start:]
        assert torch.allclose(final[row], wanted, atol=1e-11, rtol=0)


def test_readout_refuses_a_trace_that_is_not_the_models(tiny_trace: fp.Trace) -> None:
    wrong = replace(tiny_trace, logits=tiny_trace.logits + 1)
    with pytest.raises(AccountNotClosed, match=r"our replay gives the answer .*; the model"):
        read_answer(wrong, 5).clean()
