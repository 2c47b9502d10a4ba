"""The RNN of the nyu2022 study: sentiment of film reviews.

Embedding 202 x 20, a simple RNN 20 -> 40, one output: 6,561 parameters; plain SGD, one epoch, batch 64, 999 rows of
100 tokens.
"""

from typing import Any, Dict

from workloads import _reviews

DESCRIPTION: Dict[str, Any] = {
    "title": "RNN on film reviews", "dataset": "sentiment", "parameters": 6561, "samples": 999, "batch": 64,
    "optimizer": "SGD, learning rate 0.001", "loss": "binary cross-entropy with logits", "seed": 1234,
    "imports": ("torch", ("tokenizers", "torchtext")),
}  # fmt: skip
EMBEDDING, HIDDEN = 20, 40


class Training(_reviews.Classification):
    """One training job: model, data, and what one step does."""

    def __init__(self, torch: Any, device: str) -> None:
        torch.manual_seed(DESCRIPTION["seed"])
        model = build_model(torch).to(device)
        super(Training, self).__init__(torch, device, model, torch.optim.SGD(model.parameters(), lr=1e-3))

    @staticmethod
    def load(folder: str) -> Any:
        """The map-style dataset: (token ids of shape [100], label 0.0 or 1.0) for each of the 999 rows."""
        return _reviews.load(folder)


def build_model(torch: Any) -> Any:
    """The network: 6,561 parameters; input token ids [100, batch], output logits [batch, 1]."""

    class Classifier(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super(Classifier, self).__init__()
            self.embedding = torch.nn.Embedding(_reviews.TOKENS, EMBEDDING)
            self.rnn = torch.nn.RNN(EMBEDDING, HIDDEN)
            self.output = torch.nn.Linear(HIDDEN, 1)

        def forward(self, ids: Any) -> Any:
            _, hidden = self.rnn(self.embedding(ids))
            return self.output(hidden.squeeze(0))

    return Classifier()
