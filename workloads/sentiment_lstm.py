"""A bidirectional LSTM on film reviews: the tokens and data of sentiment_rnn, the sizes of a published model.

Sizes, dropout, loss, optimizer and seed are those of "2 - Upgraded Sentiment Analysis" (IMDB, 4,810,857 parameters)
in github.com/bentrevett/pytorch-sentiment-analysis: embedding 100, two bidirectional layers of 256 units, dropout
0.5 between all parts, Adam at its default rate. What differs: the vocabulary has 202 tokens instead of 25,002,
which leaves 2,330,857 parameters; embeddings start at random instead of as GloVe's, which changes no step's work;
every row has 100 tokens, padding included, as in that notebook before it packed its sequences.

A processor core takes 0.2 s for a step of 8 rows, and a second for one of the notebook's 64: the batch is 8, and a
run takes the first 128 rows, unless the study says otherwise; the prepared set has 999 of them.
"""

from typing import Any, Dict, Mapping

from workloads import _reviews

SAMPLES = 128

DESCRIPTION: Dict[str, Any] = {
    "title": "LSTM on film reviews", "dataset": "sentiment", "parameters": 2330857, "samples": SAMPLES,
    "batch": 8, "optimizer": "Adam, learning rate 0.001", "loss": "binary cross-entropy with logits",
    "seed": 1234, "imports": ("torch", ("tokenizers", "torchtext")),
    "options": {"samples": {"default": SAMPLES, "least": 1, "most": 999}},
}  # fmt: skip
DEFAULTS: Dict[str, Any] = {"samples": SAMPLES}
EMBEDDING, HIDDEN, LAYERS, DROPOUT = 100, 256, 2, 0.5


def described(options: Mapping[str, Any]) -> Dict[str, Any]:
    """DESCRIPTION at these options."""
    return dict(DESCRIPTION, samples=options["samples"])


class Training(_reviews.Classification):
    """One training job: model, data, and what one step does."""

    def __init__(self, torch: Any, device: str, options: Mapping[str, Any] = DEFAULTS) -> None:
        torch.manual_seed(DESCRIPTION["seed"])
        model = build_model(torch).to(device)
        super(Training, self).__init__(torch, device, model, torch.optim.Adam(model.parameters()))

    @staticmethod
    def load(folder: str, options: Mapping[str, Any] = DEFAULTS) -> Any:
        """The map-style dataset: (token ids of shape [100], label 0.0 or 1.0) for each of the first rows."""
        return _reviews.load(folder, options["samples"])


def build_model(torch: Any, tokens: int = _reviews.TOKENS) -> Any:
    """The network of a vocabulary of so many tokens; input token ids [100, batch], output logits [batch, 1]."""

    class Classifier(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super(Classifier, self).__init__()
            self.embedding = torch.nn.Embedding(tokens, EMBEDDING)
            self.lstm = torch.nn.LSTM(EMBEDDING, HIDDEN, LAYERS, bidirectional=True, dropout=DROPOUT)
            self.output = torch.nn.Linear(2 * HIDDEN, 1)
            self.dropout = torch.nn.Dropout(DROPOUT)

        def forward(self, ids: Any) -> Any:
            _, (hidden, _) = self.lstm(self.dropout(self.embedding(ids)))
            both = torch.cat((hidden[-2], hidden[-1]), dim=1)  # the last layer's ends, of either direction
            return self.output(self.dropout(both))

    return Classifier()
