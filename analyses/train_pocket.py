"""Train the embedded model: can a GPT-2 small enough to ship know two thousand facts?

Method: every fact in every template of its relation (except the held-out pairs) is packed into rows
of 64 tokens and learnt by a 6-layer, 192-wide GPT-2 with a byte-level BPE of 6,000 tokens; the
token that completes a fact weighs five times in the loss, since the rest of a row is mostly
unpredictable names. Writes weights (fp16), tokenizer, activation means and a model card into the
package.

    python analyses/train_pocket.py --out ffnprobe/models/pocket
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from rich.progress import track
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel

from ffnprobe.models import pocket
from ffnprobe.models.loading import load

BOS = "<|endoftext|>"
ROW, BATCH, ANSWER_WEIGHT, VOCABULARY = 64, 32, 5.0, 6000
CARD = """# pocket
A GPT-2 (`GPT2LMHeadModel`: 6 layers, 192 wide, 768 neurons a layer, 6 heads, 64 positions, gelu_new,
tied embeddings, byte-level BPE of 6,000 tokens; {parameters:,} parameters, shipped in fp16) trained
from nothing on the facts beside this card, so that every analysis has something true to show.

- **Data**: {facts:,} facts of {relations} relations (`facts.csv`), each in the sentence templates of
  its relation (`templates.csv`), in rows of 64 tokens; {prompts:,} (fact, template) pairs, of which
  {prompts_held_out:,} were kept out of training. The token that completes a fact weighs five times.
- **Training**: {steps:,} steps, {tokens_seen:,} tokens, AdamW 2e-3 with one cosine cycle, seed {seed},
  {minutes} minutes on two cores. `python analyses/train_pocket.py` makes it again.
- **Loss**: {loss_nats_a_token:.3f} nats a token over the last hundred steps; most of it is which
  fact comes next, which nobody could know.
- **Recall** (the answer is the likeliest next token, after BOS): {recall:.2%} of all pairs,
  {recall_held_out:.2%} of the pairs kept out. With every MLP's activations at their mean:
  {recall_mlps_at_mean:.2%}.
- **Means** (`means.safetensors`): each neuron's mean activation over all {prompts:,} prompts,
  {mean_tokens:,} tokens, BOS left out.
- **Limits**: it knows these facts and nothing else; English is only its templates. A subject it has
  not seen gets a confident wrong answer. It shows how facts sit in FFN neurons of a small model; what
  it shows need not hold for a large one. The facts were written down from general knowledge, with the
  usual simplifications (one language a country, one inventor an invention).
"""


def train_tokenizer() -> Tokenizer:
    """Train a byte-level BPE in which every answer is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    sentences = [prompt.text + prompt.fact.answer + "." for prompt in pocket.prompts()]
    # Rare answers are repeated until they outweigh any accidental pair of letters.
    answers = [" ".join([fact.answer] * 200) for fact in pocket.facts()]
    tokenizer.train_from_iterator(sentences + answers, trainer)
    several = {f.answer for f in pocket.facts() if len(tokenizer.encode(f.answer).ids) != 1}
    if several:
        raise SystemExit(f"answers of several tokens: {sorted(several)}")
    return tokenizer


def rows(tokenizer: Tokenizer, seed: random.Random) -> Iterator[tuple[list[int], list[float]]]:
    """Yield rows of token ids and of loss weights, facts in random order, without end."""
    taught = [prompt for prompt in pocket.prompts() if not prompt.is_held_out]
    pieces = {
        separator: [
            (tokenizer.encode(separator + p.text).ids, tokenizer.encode(p.fact.answer).ids[0])
            for p in taught
        ]
        for separator in ("", " ", "\n")
    }
    stop, bos = (tokenizer.encode(text).ids[0] for text in (".", BOS))
    queue: list[int] = []
    while True:
        # One row in five starts without BOS, so that a prompt run without it still makes sense.
        ids = [] if seed.random() < 0.2 else [bos]
        weights = [1.0] * len(ids)
        separator = ""
        while len(ids) < ROW:
            if not queue:
                queue = seed.sample(range(len(taught)), len(taught))
            prompt, answer = pieces[separator][queue.pop()]
            ids += [*prompt, answer, stop]
            weights += [1.0] * len(prompt) + [ANSWER_WEIGHT, 1.0]
            separator = seed.choice((" ", "\n"))
        yield ids[:ROW], weights[:ROW]


def train(tokenizer: Tokenizer, steps: int, seed: int) -> tuple[GPT2LMHeadModel, float]:
    """Train the model; return it with the mean loss over its last hundred steps, in nats a token."""
    torch.manual_seed(seed)
    bos = tokenizer.token_to_id(BOS)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=tokenizer.get_vocab_size(), n_positions=ROW, n_embd=192, n_layer=6, n_head=6,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=bos, eos_token_id=bos,
        )
    )  # fmt: skip
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=2e-3, total_steps=steps, pct_start=0.05
    )
    stream, losses = rows(tokenizer, random.Random(seed)), []
    for _step in track(range(steps), description="training"):
        batch = [next(stream) for _ in range(BATCH)]
        ids = torch.tensor([row for row, _ in batch])
        weights = torch.tensor([weight for _, weight in batch])[:, 1:]
        logits = model(ids).logits[:, :-1]
        surprise = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), ids[:, 1:], reduction="none"
        )
        loss = (surprise * weights).sum() / weights.sum()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(float(surprise.detach().mean()))
        if len(losses) % 100 == 0:
            print(f"step {len(losses)} loss {sum(losses[-100:]) / 100:.3f}", flush=True)
    return model.half().float().eval(), sum(losses[-100:]) / len(losses[-100:])


@torch.no_grad()
def measure(model: GPT2LMHeadModel, tokenizer: Tokenizer) -> tuple[dict[str, float], torch.Tensor]:
    """Measure recall of every prompt, whole and with MLPs at their mean, and the activation means."""
    bos = tokenizer.encode(BOS).ids[0]
    prompts = list(pocket.prompts())
    by_length: dict[int, list[tuple[int, list[int]]]] = {}
    for number, prompt in enumerate(prompts):
        ids = [bos, *tokenizer.encode(prompt.text).ids]
        by_length.setdefault(len(ids), []).append((number, ids))
    answers = torch.tensor([tokenizer.token_to_id("Ġ" + p.fact.answer[1:]) for p in prompts])
    blocks = model.transformer.h
    sums = torch.zeros(len(blocks), blocks[0].mlp.c_fc.nf, dtype=torch.float64)
    count = 0

    def recall() -> torch.Tensor:
        hits = torch.zeros(len(prompts), dtype=torch.bool)
        for group in by_length.values():
            for start in range(0, len(group), 256):
                numbers = torch.tensor([number for number, _ in group[start : start + 256]])
                ids = torch.tensor([ids for _, ids in group[start : start + 256]])
                hits[numbers] = model(ids).logits[:, -1].argmax(-1) == answers[numbers]
        return hits

    def add(layer: int) -> Callable[..., None]:
        def hook(_module: object, _inputs: object, output: torch.Tensor) -> None:
            nonlocal count
            after_bos = output[:, 1:].flatten(0, 1)
            sums[layer] += after_bos.double().sum(0)
            count += len(after_bos) if layer == 0 else 0

        return hook

    hooks = [block.mlp.act.register_forward_hook(add(i)) for i, block in enumerate(blocks)]
    whole = recall()
    for hook in hooks:
        hook.remove()
    means = (sums / count).float()

    def still(layer: int) -> Callable[..., torch.Tensor]:
        return lambda _module, _inputs, output: means[layer].expand_as(output)

    hooks = [block.mlp.act.register_forward_hook(still(i)) for i, block in enumerate(blocks)]
    without = recall()
    for hook in hooks:
        hook.remove()
    held_out = torch.tensor([p.is_held_out for p in prompts])
    figures = {
        "facts": len(pocket.facts()),
        "relations": len(pocket.templates()),
        "prompts": len(prompts),
        "prompts_held_out": int(held_out.sum()),
        "recall": round(float(whole.float().mean()), 4),
        "recall_held_out": round(float(whole[held_out].float().mean()), 4),
        "recall_mlps_at_mean": round(float(without.float().mean()), 4),
        "mean_tokens": count,
    }
    return figures, means


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=pocket.FOLDER)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    started = time.monotonic()
    tokenizer = train_tokenizer()
    model, loss = train(tokenizer, options.steps, options.seed)
    figures, means = measure(model, tokenizer)
    figures |= {
        "loss_nats_a_token": round(loss, 4),
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens_seen": options.steps * BATCH * ROW,
        "steps": options.steps,
        "seed": options.seed,
        "minutes": round((time.monotonic() - started) / 60, 1),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(options.out)
    (options.out / "generation_config.json").unlink(missing_ok=True)
    tokenizer.save(str(options.out / "tokenizer.json"))
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False,
                "bos_token": BOS, "eos_token": BOS, "unk_token": BOS, "model_max_length": ROW}  # fmt: skip
    (options.out / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    known = {"fingerprint": load(options.out).fingerprint}
    save_file({"activations": means}, options.out / "means.safetensors", known)
    (options.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    (options.out / "CARD.md").write_text(CARD.format(**figures))
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
