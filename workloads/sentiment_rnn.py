"""The RNN of the nyu2022 study: sentiment of film reviews.

Embedding 202 x 20, a simple RNN 20 -> 40, one output: 6,561 parameters; plain SGD, one epoch, batch 64, 999 rows.
Text is lower-cased, stripped of punctuation and split on spaces; the vocabulary holds the 200 most frequent words,
ties in alphabetical order, after the unknown and the padding token; every row is cut or padded to 100 tokens.
Two libraries can make that vocabulary: tokenizers where the stack has it, else torchtext, which the study used. On
the data sets here both give the same token ids; on text with control characters they need not.
"""

import json
import os
import re
from typing import Any, Dict, List, Tuple

DESCRIPTION: Dict[str, Any] = {
    "title": "RNN on film reviews",
    "dataset": "sentiment",
    "parameters": 6561,
    "samples": 999,
    "batch": 64,
    "optimizer": "SGD, learning rate 0.001",
    "loss": "binary cross-entropy with logits",
    "seed": 1234,
    "imports": ("torch", ("tokenizers", "torchtext")),
}
VOCABULARY_WORDS = 200
LENGTH = 100
UNKNOWN, PADDING = "<unk>", "<pad>"
PUNCTUATION = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
EMBEDDING, HIDDEN = 20, 40


class Training:
    """One training job: model, data, and what one step does."""

    def __init__(self, torch: Any, device: str) -> None:
        torch.manual_seed(DESCRIPTION["seed"])
        self.torch = torch
        self.device = device
        self.model = build_model(torch).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    @staticmethod
    def load(folder: str) -> Any:
        """The map-style dataset: (token ids of shape [100], label 0.0 or 1.0) for each of the 999 rows."""
        import torch

        texts, labels = read_rows(folder)
        ids = torch.tensor(encode(texts), dtype=torch.long)
        return torch.utils.data.TensorDataset(ids, torch.tensor(labels, dtype=torch.float32))

    def loss(self, batch: Any) -> Any:
        """Loss of one batch, as a tensor that can be differentiated."""
        ids, labels = batch
        ids, labels = ids.to(self.device), labels.to(self.device)
        logits = self.model(ids.t()).squeeze(1)
        return self.torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)

    def step(self, batch: Any) -> Any:
        """Forward, backward, update; returns the loss as a tensor without waiting for the device."""
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def end_epoch(self) -> None:
        """Nothing happens between epochs."""


def read_rows(folder: str) -> Tuple[List[str], List[float]]:
    """Texts and labels (1.0 positive, 0.0 negative) of the prepared reviews, in file order."""
    with open(os.path.join(folder, "reviews.jsonl"), encoding="utf-8") as handle:
        rows = [json.loads(line) for line in handle]
    return [row["text"] for row in rows], [float(row["label"]) for row in rows]


def encode(texts: List[str]) -> List[List[int]]:
    """Token ids, one list of LENGTH per text, from the vocabulary of these same texts."""
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        return encode_with_torchtext(texts)
    return encode_with_tokenizers(texts)


def encode_with_torchtext(texts: List[str]) -> List[List[int]]:
    """As the study made its vocabulary."""
    from torchtext.vocab import build_vocab_from_iterator

    words = [re.sub(PUNCTUATION, "", text.lower()).split() for text in texts]
    vocabulary = build_vocab_from_iterator(
        words, specials=[UNKNOWN, PADDING], max_tokens=VOCABULARY_WORDS + 2, special_first=True
    )
    vocabulary.set_default_index(vocabulary[UNKNOWN])
    padding = vocabulary[PADDING]
    rows = [vocabulary(row[:LENGTH]) for row in words]
    return [row + [padding] * (LENGTH - len(row)) for row in rows]


def encode_with_tokenizers(texts: List[str]) -> List[List[int]]:
    """As the current stack makes the same one."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(Regex(PUNCTUATION), "")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(
        vocab_size=VOCABULARY_WORDS + 2, special_tokens=[UNKNOWN, PADDING], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH, pad_id=tokenizer.token_to_id(PADDING), pad_token=PADDING)
    return [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def build_model(torch: Any) -> Any:
    """The network: 6,561 parameters; input token ids [100, batch], output logits [batch, 1]."""

    class Classifier(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super(Classifier, self).__init__()
            self.embedding = torch.nn.Embedding(VOCABULARY_WORDS + 2, EMBEDDING)
            self.rnn = torch.nn.RNN(EMBEDDING, HIDDEN)
            self.output = torch.nn.Linear(HIDDEN, 1)

        def forward(self, ids: Any) -> Any:
            _, hidden = self.rnn(self.embedding(ids))
            return self.output(hidden.squeeze(0))

    return Classifier()
