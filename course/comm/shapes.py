"""The tensors of ResNet50, without their memory: on torch's meta device, without torchvision.

Only shapes and dtypes, in the order in which a model's ``state_dict`` has them: enough to send the
right bytes in the right pieces.

Source: K. He et al., arXiv:1512.03385, table 1 (50 layers; 3x3 convolutions carry the stride).
"""

import torch

RESNET50_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""(number of blocks, channels inside a block); a block's output has four times as many."""


def resnet50(*, width: float = 1.0) -> list[torch.Tensor]:
    """Return ResNet50's 320 tensors: 161 parameters and 159 buffers of batch normalisation.

    `width` is a factor on every layer's width but the pictures' 3 channels and the 1,000 classes;
    bytes shrink with about its square.

    >>> len(resnet50()), sum(tensor.nbytes for tensor in resnet50())
    (320, 102441032)
    """
    stem = max(1, round(64 * width))
    layers, inputs = _convolution(3, stem, 7), stem
    for blocks, full in RESNET50_STAGES:
        channels = max(1, round(full * width))
        for block in range(blocks):
            layers += _convolution(inputs, channels, 1)
            layers += _convolution(channels, channels, 3)
            layers += _convolution(channels, 4 * channels, 1)
            if block == 0:  # beside them, so that the block's input can be added to its output
                layers += _convolution(inputs, 4 * channels, 1)
            inputs = 4 * channels
    return [*layers, _empty(1000, inputs), _empty(1000)]


def _convolution(inputs: int, outputs: int, kernel: int) -> list[torch.Tensor]:
    """Return the tensors of a convolution and of the batch normalisation that follows it."""
    normalisation = [_empty(outputs) for _ in ("weight", "bias", "mean", "variance")]
    batches = torch.empty((), dtype=torch.int64, device="meta")
    return [_empty(outputs, inputs, kernel, kernel), *normalisation, batches]


def _empty(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")
