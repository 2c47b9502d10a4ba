"""The film reviews as workloads read them: rows of the prepared file, token ids of their words, a classifier's job.

Text is lower-cased, stripped of punctuation and split on spaces; the vocabulary holds the 200 most frequent words,
ties in alphabetical order, after the unknown and the padding token; every row is cut or padded to 100 tokens.
Two libraries can make that vocabulary: tokenizers where the stack has it, else torchtext, which the nyu2022 study
used. On the data sets here both give the same token ids; on text with control characters they need not.
"""

import json
import os
import re
from typing import Any, List, Optional, Tuple

from workloads import _jobs

VOCABULARY_WORDS = 200
TOKENS = VOCABULARY_WORDS + 2
LENGTH = 100
UNKNOWN, PADDING = "<unk>", "<pad>"
PUNCTUATION = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
FILE = "reviews.jsonl"


class Classification(_jobs.TorchJob):
    """A training job on reviews; `model` makes logits [batch, 1] of token ids [100, batch]."""

    def __init__(self, torch: Any, device: str, model: Any, optimizer: Any) -> None:
        self.torch = torch
        self.device = device
        self.model = model
        self.optimizer = optimizer

    def loss(self, batch: Any) -> Any:
        """Loss of one batch, as a tensor that can be differentiated."""
        ids, labels = batch
        ids, labels = ids.to(self.device), labels.to(self.device)
        logits = self.model(ids.t()).squeeze(1)
        return self.torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)


def load(folder: str, samples: Optional[int] = None) -> Any:
    """Reviews, `samples` of them, as (token ids of shape [100], label 0.0 or 1.0); its vocabulary is of all."""
    import torch

    texts, labels = read_rows(folder)
    ids = torch.tensor(encode(texts)[:samples], dtype=torch.long)
    return torch.utils.data.TensorDataset(ids, torch.tensor(labels[:samples], dtype=torch.float32))


def read_rows(folder: str) -> Tuple[List[str], List[float]]:
    """Texts and labels (1.0 positive, 0.0 negative) in file order; raises ValueError with file and line."""
    path = os.path.join(folder, FILE)
    texts, labels = [], []
    with open(path, "rb") as handle:
        for number, line in enumerate(handle, start=1):
            try:
                row = json.loads(line.decode("utf-8"))
                text, label = row["text"], row["label"]
            except (ValueError, KeyError, TypeError):
                text, label = None, None
            if not isinstance(text, str) or label not in (0, 1):
                raise ValueError(
                    "{} line {} is no review: it needs a text, and a label 0 or 1".format(path, number)
                )
            texts.append(text)
            labels.append(float(label))
    return texts, labels


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
        words, specials=[UNKNOWN, PADDING], max_tokens=TOKENS, special_first=True
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
    trainer = trainers.WordLevelTrainer(vocab_size=TOKENS, special_tokens=[UNKNOWN, PADDING], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH, pad_id=tokenizer.token_to_id(PADDING), pad_token=PADDING)
    return [encoding.ids for encoding in tokenizer.encode_batch(texts)]
