"""Settings of the framework, each a factor of arms: applied to a training job before its first step.

    tf32     off, on             products and convolutions of fp32 tensors on tensor cores, in TensorFloat-32
    amp      bf16, fp16          automatic mixed precision: forward and loss under autocast; fp16 scales the loss
    layout   channels-last       images and filters of four dimensions with their channels innermost
    compile  inductor            torch.compile of the model
    graph    capture             the whole step as one CUDA graph, replayed
    cudnn    benchmark           cuDNN tries its algorithms and keeps the fastest

Without a setting the framework's own default stands, and the facts of the launch say what that is (`effective`).
A setting that this framework, device or workload can't have raises `Unable` with the reason: it is not passed over.
"""

import os

GRAPH_WARMUP_STEPS = 3  # what a capture must not see: choice of algorithms, first allocations


class Unable(RuntimeError):
    """A setting can't be had here."""


def prepare(torch, settings):
    """What has to stand before the model is built: switches of the whole process."""
    level = settings.get("tf32")
    if level in ("off", "on"):
        torch.backends.cuda.matmul.allow_tf32 = level == "on"
        torch.backends.cudnn.allow_tf32 = level == "on"
    if settings.get("cudnn") == "benchmark":
        torch.backends.cudnn.benchmark = True
    if settings.get("compile") == "inductor":
        prepare_compiler()


def prepare_compiler():
    """Where compiled code lies: in the launch's own folder, so that a whole run compiles anew, or where it is told.

    Where it is kept from launch to launch, headers are not compiled beforehand: the framework keeps those in the
    launch's folder in any case, and would make them again for every launch that only reads what others compiled.
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(os.environ.get("TMPDIR", "/tmp"), "inductor")
        return
    try:
        from torch._inductor import config
    except ImportError:  # a framework without a compiler: `apply` says so
        return
    if hasattr(config, "cpp_cache_precompile_headers"):
        config.cpp_cache_precompile_headers = False


def apply(torch, training, settings, device):
    """Change a training job so that its `step` runs at these levels."""
    if settings.get("layout") == "channels-last":
        use_channels_last(torch, training)
    if settings.get("compile") == "inductor":
        if not hasattr(torch, "compile"):
            raise Unable("torch {} has no torch.compile".format(torch.__version__))
        training.model = torch.compile(training.model)
    if settings.get("amp") in ("bf16", "fp16"):
        use_mixed_precision(torch, training, settings["amp"], device)
    if settings.get("graph") == "capture":
        if device != "cuda":
            raise Unable("graphs are captured from the streams of a CUDA device")
        training.step = Captured(torch, training)


def loss_of(training, setting):
    """The workload's loss, which the step calls; a workload without one can't be changed there."""
    if not hasattr(training, "loss"):
        raise Unable("{} needs a workload whose step calls its own loss(batch)".format(setting))
    return training.loss


def use_channels_last(torch, training):
    """Filters and images with their channels innermost, in memory only: shapes stay as they are."""
    if not any(parameter.dim() == 4 for parameter in training.model.parameters()):
        raise Unable("channels-last changes nothing here: the model has no filter of four dimensions")
    training.model = training.model.to(memory_format=torch.channels_last)
    plain = loss_of(training, "layout")

    def loss(batch):
        return plain(
            [part.contiguous(memory_format=torch.channels_last) if part.dim() == 4 else part for part in batch]
        )

    training.loss = loss


def use_mixed_precision(torch, training, level, device):
    """Forward pass and loss under autocast; with fp16 the loss is scaled, as PyTorch's own recipe has it."""
    if not hasattr(torch, "autocast"):
        raise Unable("torch {} has no torch.autocast".format(torch.__version__))
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[level]
    plain = loss_of(training, "amp")

    def loss(batch):
        with torch.autocast(device, dtype=dtype):
            return plain(batch)

    training.loss = loss
    if level == "fp16":
        if device != "cuda":
            raise Unable("fp16 needs a scaled loss, which this harness does on a CUDA device only; use amp=bf16")
        training.step = scaled_step(torch, training)


def scaled_step(torch, training):
    """A step whose loss is scaled before the backward pass."""
    amp = getattr(torch, "amp", None)  # from 1.12 on; the scaler is in it from 2.3 on
    scaler = amp.GradScaler("cuda") if hasattr(amp, "GradScaler") else torch.cuda.amp.GradScaler()

    def step(batch):
        training.optimizer.zero_grad()
        loss = training.loss(batch)
        scaler.scale(loss).backward()
        scaler.step(training.optimizer)
        scaler.update()
        return loss.detach()

    return step


class Captured(object):
    """A training step as one CUDA graph for each shape of batch: captured at the first call, then replayed.

    The recipe is PyTorch's own (its notes on CUDA graphs): some steps on a side stream, gradients set to None, the
    whole step captured on tensors that stay where they are. Each call copies its batch into those.
    """

    def __init__(self, torch, training):
        self.torch = torch
        self.training = training
        self.plain = training.step
        self.graphs = {}
        for group in training.optimizer.param_groups:
            if "capturable" in group:
                group["capturable"] = True

    def __call__(self, batch):
        """Replay the step on this batch; returns the loss."""
        key = tuple(tuple(part.shape) for part in batch)
        if key not in self.graphs:
            self.graphs[key] = self.capture(batch)
        graph, inputs, loss = self.graphs[key]
        for own, part in zip(inputs, batch):
            own.copy_(part, non_blocking=True)
        graph.replay()
        return loss.clone()

    def capture(self, batch):
        """(graph, its input tensors, the tensor that holds the loss after a replay)."""
        torch = self.torch
        inputs = [part.to(self.training.device).clone() for part in batch]
        before = self.snapshot()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(GRAPH_WARMUP_STEPS):
                self.plain(inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.restore(before)
        self.training.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, **self.strictness()):
            loss = self.plain(inputs)
        return graph, inputs, loss

    def strictness(self):
        """What a capture forbids: by default also other threads' calls, and a loader's pins memory meanwhile."""
        code = getattr(self.torch.cuda.graph.__init__, "__code__", None)
        return {"capture_error_mode": "thread_local"} if code and "capture_error_mode" in code.co_varnames else {}

    def snapshot(self):
        """What the steps that only warm up will change: tensors with copies, and the random numbers' place."""
        copies = dict((key, tensor.detach().clone()) for key, tensor in self.changing())
        return copies, self.torch.cuda.get_rng_state()

    def restore(self, before):
        """Undo the steps that only warmed up; state that an optimizer made in them begins at zero."""
        copies, random_state = before
        with self.torch.no_grad():
            for key, tensor in self.changing():
                if key in copies:
                    tensor.copy_(copies[key])
                else:
                    tensor.zero_()
        self.torch.cuda.set_rng_state(random_state)

    def changing(self):
        """Each tensor that a step changes, under a key that stays: weights, buffers, the optimizer's state."""
        model = self.training.model
        for kind, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
            for name, tensor in named:
                yield (kind, name), tensor
        for index, state in enumerate(self.training.optimizer.state.values()):
            for name, value in state.items():
                if self.torch.is_tensor(value):
                    yield ("state", index, name), value


def effective(torch):
    """The framework's switches as they are now; None where this version has no such switch."""
    backends = torch.backends
    matmul = getattr(getattr(backends, "cuda", None), "matmul", None)
    return {
        "tf32_products": getattr(matmul, "allow_tf32", None),
        "tf32_convolutions": getattr(getattr(backends, "cudnn", None), "allow_tf32", None),
        "cudnn_benchmark": backends.cudnn.benchmark,
        "cudnn_deterministic": backends.cudnn.deterministic,
        "deterministic": torch.are_deterministic_algorithms_enabled()
        if hasattr(torch, "are_deterministic_algorithms_enabled")
        else None,
    }
