"""The tensors of two well-known networks, as data: VGG11 and ResNet50.

Only names, shapes and dtypes, in the order in which a model's ``state_dict`` has them: enough to
send the right bytes in the right pieces, without torchvision and without weights.

References:
    K. Simonyan, A. Zisserman, arXiv:1409.1556 (configuration A, with biases).
    K. He et al., arXiv:1512.03385, table 1 (50 layers; 3x3 convolutions carry the stride).
"""

from dataclasses import dataclass
from math import prod

ITEM_BYTES = {"int8": 1, "bfloat16": 2, "float32": 4, "int64": 8}
VGG11_LAYERS = (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M")
"""Output channels of the 3x3 convolutions; "M" is a max pooling that halves the picture."""
RESNET50_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""(number of blocks, channels inside a block); a block's output has four times as many."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor's name, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def numel(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return self.numel * ITEM_BYTES[self.dtype]


def vgg11(*, width: float = 1.0, classes: int = 1000) -> list[TensorSpec]:
    """Return VGG11's 22 parameters.

    `width` is a factor on every layer's width but the pictures' 3 channels and the classes, the
    outputs of the last layer; bytes shrink with its square.

    >>> sum(spec.numel for spec in vgg11())
    132863336
    """
    specs, inputs = [], 3
    for position, layer in enumerate(VGG11_LAYERS):
        if layer == "M":
            continue
        outputs = _scaled(layer, width)
        specs += _weight_and_bias(f"features.{position}", (outputs, inputs, 3, 3))
        inputs = outputs
    features, hidden = inputs * 7 * 7, _scaled(4096, width)
    specs += _weight_and_bias("classifier.0", (hidden, features))
    specs += _weight_and_bias("classifier.1", (hidden, hidden))
    return specs + _weight_and_bias("classifier.2", (classes, hidden))


def resnet50(*, width: float = 1.0) -> list[TensorSpec]:
    """Return ResNet50's 320 tensors: 161 parameters and 159 buffers of batch normalisation.

    `width` as in `vgg11`.

    >>> len(resnet50()), sum(spec.nbytes for spec in resnet50())
    (320, 102441032)
    """
    inputs = _scaled(64, width)
    specs = [TensorSpec("conv1.weight", (inputs, 3, 7, 7)), *_batch_norm("bn1", inputs)]
    for stage, (blocks, channels) in enumerate(RESNET50_STAGES, start=1):
        inner = _scaled(channels, width)
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            specs += _convolution(f"{name}.1", inner, inputs, 1)
            specs += _convolution(f"{name}.2", inner, inner, 3)
            specs += _convolution(f"{name}.3", 4 * inner, inner, 1)
            if block == 0:
                specs += _convolution(f"{name}.downsample", 4 * inner, inputs, 1)
            inputs = 4 * inner
    return specs + _weight_and_bias("fc", (1000, inputs))


def _scaled(channels: int, width: float) -> int:
    return max(1, round(channels * width))


def _weight_and_bias(name: str, shape: tuple[int, ...]) -> list[TensorSpec]:
    return [TensorSpec(f"{name}.weight", shape), TensorSpec(f"{name}.bias", shape[:1])]


def _convolution(name: str, outputs: int, inputs: int, kernel: int) -> list[TensorSpec]:
    weight = TensorSpec(f"{name}.conv.weight", (outputs, inputs, kernel, kernel))
    return [weight, *_batch_norm(f"{name}.bn", outputs)]


def _batch_norm(name: str, channels: int) -> list[TensorSpec]:
    parts = ("weight", "bias", "running_mean", "running_var")
    specs = [TensorSpec(f"{name}.{part}", (channels,)) for part in parts]
    return [*specs, TensorSpec(f"{name}.num_batches_tracked", (), "int64")]
