"""Runs by the hooks: two runs of one model take turns, those of two models do not wait for each other."""

import threading
from dataclasses import replace

import pytest
import torch

from ffnprobe.models.bridge import boot
from ffnprobe.models.forward import forward

SECONDS = 20.0


@pytest.mark.parametrize("is_other", [True, False])
def test_a_run_waits_only_for_its_own_model(hooked_tiny, is_other):
    second = replace(hooked_tiny) if is_other else hooked_tiny
    for model in (hooked_tiny, second):
        boot(model)
    ids, begun, done = torch.tensor([[1, 2, 3]]), threading.Event(), threading.Event()
    seen = []

    def run_second():
        begun.wait(SECONDS)
        forward(second, ids, {("activations", 0): lambda tensor: None})
        done.set()

    def hold(tensor):
        begun.set()
        # A run of the same model cannot end before this one does.
        seen.append(done.wait(SECONDS if is_other else 0.5))

    thread = threading.Thread(target=run_second)
    thread.start()
    forward(hooked_tiny, ids, {("activations", 0): hold})
    thread.join(SECONDS)
    assert seen == [is_other]
    assert done.is_set()
