"""A small causal Transformer that predicts the next byte of the film reviews' text.

Layout, optimizer and seed are nanoGPT's (github.com/karpathy/nanoGPT), in the sizes that its README gives for a
computer without a GPU: 4 layers, 4 heads, width 128, context 64, batch 12, no dropout, no biases, output weights
shared with the embedding, gradients clipped at norm 1, AdamW with betas 0.9 and 0.99 and a decay of 0.1 for
matrices. What differs: tokens are the 256 bytes of UTF-8, where its text has 65 characters, which makes 828,544
parameters of 804,096; the rate is its highest, 0.001, throughout, since a run ends within the 100 steps of its
warm-up; samples follow each other in the text and are shuffled, where it draws their places at random.

The text is all reviews in file order, a line each; a sample is 64 bytes, and the one that follows each of them.
Attention is the framework's own operator, from PyTorch 2.0 on, and spelled out where there is none, as in nanoGPT.
"""

import math
from typing import Any, Callable, Dict

from workloads import _jobs, _reviews

DESCRIPTION: Dict[str, Any] = {
    "title": "Transformer on film reviews",
    "dataset": "sentiment",
    "parameters": 828544,
    "samples": 384,
    "batch": 12,
    "optimizer": "AdamW, learning rate 0.001, weight decay 0.1, gradients clipped at norm 1",
    "loss": "cross-entropy of the next byte",
    "seed": 1337,
    "imports": ("torch",),
}
TOKENS = 256
LAYERS, HEADS, WIDTH, CONTEXT = 4, 4, 128, 64
DECAY, LARGEST_NORM = 0.1, 1.0
SPREAD = 0.02  # of initial weights; of what is added to the residual stream, less by the root of such additions


class Training(_jobs.TorchJob):
    """One training job: model, data, and what one step does."""

    def __init__(self, torch: Any, device: str) -> None:
        torch.manual_seed(DESCRIPTION["seed"])
        self.torch = torch
        self.device = device
        self.model = build_model(torch).to(device)
        matrices = [weight for weight in self.model.parameters() if weight.dim() >= 2]
        others = [weight for weight in self.model.parameters() if weight.dim() < 2]
        groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))

    @staticmethod
    def load(folder: str) -> Any:
        """The map-style dataset: (64 bytes, the byte after each), both of shape [64], for each of 384 samples."""
        import torch

        texts, _ = _reviews.read_rows(folder)
        stream = bytearray("\n".join(texts).encode("utf-8"))
        samples = min(DESCRIPTION["samples"], (len(stream) - 1) // CONTEXT)
        if samples < 1:
            raise ValueError("the reviews hold {} bytes of text, less than one sample".format(len(stream)))
        ids = torch.tensor(stream[: samples * CONTEXT + 1], dtype=torch.long)
        return torch.utils.data.TensorDataset(ids[:-1].view(samples, CONTEXT), ids[1:].view(samples, CONTEXT))

    def loss(self, batch: Any) -> Any:
        """Loss of one batch, as a tensor that can be differentiated."""
        ids, following = batch[0].to(self.device), batch[1].to(self.device)
        logits = self.model(ids)
        return self.torch.nn.functional.cross_entropy(logits.view(-1, TOKENS), following.view(-1))

    def clip(self) -> None:
        """Shorten the gradients to a norm of 1 together, where they are longer."""
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), LARGEST_NORM)

    def step(self, batch: Any) -> Any:
        """Forward, backward, update; returns the loss as a tensor without waiting for the device."""
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.clip()
        self.optimizer.step()
        return loss.detach()


def attention_of(torch: Any) -> Callable[[Any, Any, Any], Any]:
    """Causal attention of queries, keys, values [batch, heads, positions, features]: the framework's, or ours."""
    fused = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    if fused is not None:
        return lambda query, key, value: fused(query, key, value, is_causal=True)

    def spelled_out(query: Any, key: Any, value: Any) -> Any:
        positions = query.shape[-2]
        later = torch.ones(positions, positions, dtype=torch.bool, device=query.device).triu(1)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        return scores.masked_fill(later, float("-inf")).softmax(dim=-1) @ value

    return spelled_out


def build_model(torch: Any, tokens: int = TOKENS) -> Any:
    """The network of so many tokens; input ids [batch, 64 or less], output logits [batch, positions, tokens]."""
    nn, functional = torch.nn, torch.nn.functional
    attend = attention_of(torch)

    class Norm(torch.nn.Module):  # type: ignore[misc]
        """Layer normalisation without a bias, which the framework's own has from 2.1 on only."""

        def __init__(self) -> None:
            super(Norm, self).__init__()
            self.weight = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: Any) -> Any:
            return functional.layer_norm(x, (WIDTH,), self.weight, None, 1e-5)

    class Attention(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super(Attention, self).__init__()
            self.inputs = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
            self.added = nn.Linear(WIDTH, WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            batch, positions, _ = x.shape
            query, key, value = [
                part.view(batch, positions, HEADS, WIDTH // HEADS).transpose(1, 2)
                for part in self.inputs(x).split(WIDTH, dim=2)
            ]
            mixed = attend(query, key, value).transpose(1, 2).reshape(batch, positions, WIDTH)
            return self.added(mixed)

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super(Block, self).__init__()
            self.before_attention, self.before_layers = Norm(), Norm()
            self.attention = Attention()
            self.inputs = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
            self.added = nn.Linear(4 * WIDTH, WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.before_attention(x))
            return x + self.added(functional.gelu(self.inputs(self.before_layers(x))))

    class LanguageModel(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super(LanguageModel, self).__init__()
            self.embedding = nn.Embedding(tokens, WIDTH)
            self.positions = nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
            self.norm = Norm()
            for name, weight in self.named_parameters():
                if weight.dim() >= 2:
                    additions = 2 * LAYERS if name.endswith("added.weight") else 1
                    nn.init.normal_(weight, std=SPREAD / math.sqrt(additions))

        def forward(self, ids: Any) -> Any:
            places = torch.arange(ids.shape[1], device=ids.device)
            x = self.blocks(self.embedding(ids) + self.positions(places))
            return functional.linear(self.norm(x), self.embedding.weight)

    return LanguageModel()
