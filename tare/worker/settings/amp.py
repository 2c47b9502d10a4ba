"""`amp=bf16, fp16`: automatic mixed precision; with fp16 the loss is scaled, as PyTorch's own recipe has it."""

from typing import Any, Callable

from tare.worker.frameworks import Unable
from tare.worker.settings import loss_of


def apply(torch: Any, training: Any, level: str, device: str) -> None:
    """Forward pass and loss under autocast; with fp16 the loss is scaled, as PyTorch's own recipe has it."""
    if not hasattr(torch, "autocast"):
        raise Unable("torch {} has no torch.autocast".format(torch.__version__))
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[level]
    plain = loss_of(training, "amp")

    def loss(batch: Any) -> Any:
        with torch.autocast(device, dtype=dtype):
            return plain(batch)

    training.loss = loss
    if level == "fp16":
        if device != "cuda":
            raise Unable("fp16 needs a scaled loss, which this harness does on a CUDA device only; use amp=bf16")
        training.step = scaled_step(torch, training)
    refuse_unable_layers(torch, training.model, dtype, device)


def refuse_unable_layers(torch: Any, model: Any, dtype: Any, device: str) -> None:
    """Raise Unable where an LSTM of the model can't run: oneDNN's half precision lacks it on some processors."""
    for layer in (one for one in model.modules() if isinstance(one, torch.nn.LSTM)):
        try:
            with torch.no_grad(), torch.autocast(device, dtype=dtype):
                layer(torch.zeros(2, 2, layer.input_size, device=device))
        except RuntimeError as error:
            words = str(error).partition(". ")[0]
            kind = str(dtype).rpartition(".")[2]
            raise Unable("this processor has no LSTM in {}: {}".format(kind, words)) from error


def scaled_step(torch: Any, training: Any) -> Callable[[Any], Any]:
    """A step whose loss is scaled before the backward pass; a workload's `clip` comes before the update."""
    amp: Any = getattr(torch, "amp", None)  # from 1.12 on; the scaler is in it from 2.3 on
    scaler = amp.GradScaler("cuda") if hasattr(amp, "GradScaler") else torch.cuda.amp.GradScaler()

    def step(batch: Any) -> Any:
        training.optimizer.zero_grad()
        loss = training.loss(batch)
        scaler.scale(loss).backward()
        if hasattr(training, "clip"):  # gradients have their own size again before they are clipped
            scaler.unscale_(training.optimizer)
            training.clip()
        scaler.step(training.optimizer)
        scaler.update()
        return loss.detach()

    return step
