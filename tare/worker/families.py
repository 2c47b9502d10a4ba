"""Families of operators: what a roofline draws one point for, instead of one for each of a hundred operators.

An operator belongs to the family of the call that it runs in (an optimizer's step, a dropout), else to that of
the operator's name. Element-wise FLOPs are a convention, kept apart from those of products and convolutions: one
per element of the output, whatever the operator computes for it. Copies, fills and views do no arithmetic.
"""

from typing import Optional

CONVOLUTION, PRODUCT, ELEMENT_WISE, POOLING = "convolution", "matrix product", "element-wise", "pooling"
DROPOUT, OPTIMIZER, LOSS, LOOKUP = "dropout", "optimizer", "softmax and loss", "embedding"
COPY, OTHER = "copies and fills", "other"
FAMILIES = (CONVOLUTION, PRODUCT, ELEMENT_WISE, POOLING, DROPOUT, OPTIMIZER, LOSS, LOOKUP, COPY, OTHER)
# Families whose operators count one FLOP per element of their output.
ARITHMETIC = (ELEMENT_WISE, POOLING, DROPOUT, OPTIMIZER, LOSS)

ALLOCATES = "empty"  # what only asks for memory computes nothing, whatever it runs inside of

OPTIMIZER_CALL = "Optimizer.step"
DROPOUT_CALLS = ("aten::dropout", "aten::native_dropout", "aten::feature_dropout", "aten::alpha_dropout")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "matmul", "linear", "mkldnn_linear",
            "_cudnn_rnn", "mkldnn_rnn_layer")  # fmt: skip
ATTENTION = "_scaled_dot_product"  # begins the names of attention as one operator: two products and a softmax
ELEMENTS = (
    "add sub rsub mul div neg abs sign pow sqrt rsqrt reciprocal exp log log1p sin cos tanh sigmoid relu "
    "clamp clamp_min clamp_max threshold addcmul addcdiv lerp maximum minimum where gelu silu elu leaky_relu "
    "hardtanh eq ne lt le gt ge sum mean native_layer_norm"
).split()
COPIES = "copy fill zero _to_copy clone cat stack contiguous ones_like zeros_like ones zeros repeat".split()
LOOKUPS = ("embedding", "index_select", "gather", "index", "scatter")

# Of other frameworks, whose operators are named as `tensorflow::Conv2DBackpropFilter`: the first of these that has
# a word of the name, in lower case, decides.
OTHER_FRAMEWORKS = ("tensorflow",)
WORDS = (
    (OPTIMIZER, ("apply", "adadelta", "adam", "sgd")),
    (DROPOUT, ("dropout", "random", "rng", "threefry")),
    (CONVOLUTION, ("convolution", "conv2d", "conv3d")),
    (PRODUCT, ("matmul", "dot", "fullyconnected", "gemm", "einsum")),
    (POOLING, ("pool", "reduce-window", "reduce_window", "select-and-scatter", "select_and_scatter")),
    (LOSS, ("softmax", "crossentropy", "loss")),
    (LOOKUP, ("embedding", "gather", "scatter", "onehot", "one_hot", "pick")),
    (
        ELEMENT_WISE,
        ("add", "mul", "sub", "div", "bias", "relu", "activation", "sqrt", "square", "power")
        + ("exp", "log", "tanh", "sigmoid", "sum", "mean", "reduce", "maximum", "minimum", "compare", "greater")
        + ("select", "negative"),
    ),
    (COPY, ("copy", "fill", "zeros", "ones", "cast", "convert", "concat", "assign", "broadcast", "transpose")),
)


def base_name(operator: str) -> str:
    """`mul` of `aten::mul_` and of `aten::_foreach_mul_`, `tanh` of `aten::tanh_backward`."""
    name = operator.split("::")[-1].split(".")[0]
    name = name[len("_foreach_") :] if name.startswith("_foreach_") else name
    name = name[: -len("_backward")] if name.endswith("_backward") else name
    return name.rstrip("_")


def computes(operator: str, owner: str) -> bool:
    """Whether an operator of this family counts one FLOP per element of its output."""
    return owner in ARITHMETIC and not base_name(operator).startswith(ALLOCATES)


def caller_family(call: str) -> Optional[str]:
    """Family of everything that runs inside this call, None where it makes no difference."""
    if call.startswith(OPTIMIZER_CALL):
        return OPTIMIZER
    return DROPOUT if call in DROPOUT_CALLS else None


def family(operator: str, inside: Optional[str] = None) -> str:
    """Family of an operator by its name, or `inside` where a call around it decides."""
    if inside is not None:
        return inside
    namespace, _, rest = operator.partition("::")
    if namespace in OTHER_FRAMEWORKS:
        name = rest.lower()
        return next((found for found, words in WORDS if any(word in name for word in words)), OTHER)
    if not operator.startswith("aten::") and "::" in operator and not operator.startswith("mkldnn"):
        return OTHER
    name = base_name(operator)
    own = caller_family(operator)
    if own is not None or name in ("bernoulli", "native_dropout"):  # the second is its backward pass on a device
        return own or DROPOUT
    if "conv" in name and "resolve" not in name:
        return CONVOLUTION
    if name in PRODUCTS or name.startswith(ATTENTION):
        return PRODUCT
    if "pool" in name:
        return POOLING
    if "softmax" in name or "loss" in name or "cross_entropy" in name:
        return LOSS
    if name in ELEMENTS:
        return ELEMENT_WISE
    if any(name.startswith(lookup) for lookup in LOOKUPS):
        return LOOKUP
    return COPY if name in COPIES else OTHER
