"""AdLM's network for grey images as its authors' program has it (github.com/haiphanNJIT/PrivateDeepLearning,
AdLM/MNIST).

Pixels in [-1, 1]. Two convolutions of 5 x 5 (32 and 64 maps, the size kept), each rectified and pooled by maxima
over 2 x 2; 25 units: affine, batch normalisation (epsilon 1e-3, scale and shift trained), rectified, cut to [-1, 1];
linear outputs with a bias. No local response normalisation (the paper's Eq. 22) and no rescaling by least and greatest.

The program normalises by the batch at hand, also when it predicts. A prediction that depends on the records
beside it has no bounded sensitivity (docs/proofs/evaluation.md#count), so predicting takes the running
statistics of training.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from airlock.models.papers import pooled_convolutions, taylor
from airlock.models.papers.networks import Shape, channels_first

SIDE, MAPS, UNITS = 5, (32, 64), 25
DEVIATION = FIRST_BIAS = 0.1


class AdlmProgram(nn.Module):
    """Two convolutions, one fully connected layer, linear outputs.

    Args:
        shape: of a record, whose values are in [0, 1].
        classes: how many outputs.
        signed: whether it looks at them in [-1, 1], as the program does.
    """

    def __init__(self, shape: Shape, classes: int, *, signed: bool = True) -> None:
        super().__init__()
        self.signed = signed
        inputs, (height, width) = (shape[2], MAPS[0]), shape[:2]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(below, maps, SIDE, padding=SIDE // 2) for below, maps in zip(inputs, MAPS, strict=True)
        )
        for _ in MAPS:
            height, width = -(-height // 2), -(-width // 2)
        self.last = nn.Linear(height * width * MAPS[-1], UNITS)
        self.norm = nn.BatchNorm1d(UNITS, eps=1e-3)
        self.outputs = nn.Linear(UNITS, classes)
        for layer in (*self.convolutions, self.last, self.outputs):
            nn.init.trunc_normal_(layer.weight, std=DEVIATION, a=-2 * DEVIATION, b=2 * DEVIATION)
            nn.init.constant_(layer.bias, FIRST_BIAS)

    def below(self, records: Tensor) -> Tensor:
        """What the 25 units see. Training goes the faster way where it can; both agree up to rounding."""
        records = 2 * records - 1 if self.signed else records
        if self.training and pooled_convolutions.fits(records):
            return pooled_convolutions.pooled(records, *self.convolutions)
        hidden = channels_first(records)
        for layer in self.convolutions:
            # The greatest of rectified values is the rectified greatest; this order has less to do.
            hidden = functional.relu(functional.max_pool2d(layer(hidden), 2, ceil_mode=True))
        return hidden.permute(0, 2, 3, 1).flatten(1)

    def units(self, records: Tensor) -> Tensor:
        """The 25 units, in [0, 1]."""
        return functional.relu(self.norm(self.last(self.below(records)))).clamp(-1, 1)

    def forward(self, records: Tensor) -> Tensor:
        """Scores of a batch of records in their encoded shape."""
        scores: Tensor = self.outputs(self.units(records))
        return scores


def loss(network: AdlmProgram, records: Tensor, table: Tensor, label_noise: Tensor) -> Tensor:
    """What the program minimises: the degree-2 loss, and its label noise times the output weights in each of
    n times M summands, summed up.

    Args:
        network: being trained.
        records: the perturbed inputs of one batch.
        table: (n, 3, M), the coefficients of their losses.
        label_noise: (units, M), one matrix for the whole training.
    """
    scores = network(records)
    summed: Tensor = taylor.polynomial(scores, table).sum()
    noise: Tensor = scores.numel() * (label_noise.T * network.outputs.weight).sum()
    return summed - noise
