"""The projections from their formulas, in float64 and over the whole vocabulary."""

import torch
from torch import Tensor

import ffnprobe as fp


def project_answers(model: fp.Model, answers: Tensor, convention: str) -> Tensor:
    gain, shift = model.final_gain.double(), model.final_shift.double()
    head, w = model.head.double(), answers.double()
    if convention == "raw":
        return w @ head.T
    if convention == "gain":
        return (gain * w) @ head.T
    if convention == "normed":
        normed = torch.nn.functional.layer_norm(w, w.shape[-1:], gain, shift, model.config.eps)
        return normed @ head.T
    tokens = gain * head
    logits = w @ (tokens - tokens.mean(-1, keepdim=True)).T
    return logits - logits.mean(-1, keepdim=True)


def project_questions(model: fp.Model, questions: Tensor, through: str) -> Tensor:
    tokens = model.embedding if through == "embed" else model.unembedding
    return questions.double() @ tokens.double().T
