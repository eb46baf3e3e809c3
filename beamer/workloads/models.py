"""What models synchronise and compute per iteration: published parameter counts, and times on one V100 in fp32.

A time is either *measured* by the source it names (batch divided by the published throughput) or an *assumption*, as its source
then says: work by the usual rules, 6 operations per parameter and token of a transformer, 3 times the forward pass
of a convolutional network or vision transformer, at half of the V100's peak of 15.7 Tflop/s. The two measured kinds come to
50 % (BERT-large) and 63 % (ResNet-50) of that peak by the same rules.
"""

from dataclasses import dataclass

FP32_BYTES = 4
ASSUMED_FLOPS = 0.5 * 15.7e12

_TORCHVISION = "torchvision's table of pre-trained weights"
_LAMBDA = "Lambda, RTX 2080 Ti Deep Learning Benchmarks with TensorFlow, 2019 (V100 SXM3 32 GB)"
_RULE = "assumption: half of peak"


@dataclass(frozen=True)
class Model:
    """A model that searches tune.

    parameters: trained by every worker, those of sharded embedding tables left out. batch: samples per worker and iteration.
    compute_s: seconds that a V100 computes per iteration in fp32. parameters_source, compute_source: where the two come from.
    """

    name: str
    parameters: int
    batch: int
    compute_s: float
    parameters_source: str
    compute_source: str

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one gradient in fp32."""
        return FP32_BYTES * self.parameters


def _assumed(name: str, parameters: int, batch: int, flops: float, source: str, rule: str) -> Model:
    """Return a model whose iteration takes `flops` operations."""
    return Model(name, parameters, batch, flops / ASSUMED_FLOPS, source, f"{_RULE}, {rule}")


_ALL = (
    Model("resnet50", 25_557_032, 64, 64 / 405, _TORCHVISION, f"{_LAMBDA}: 405 images/s"),
    Model("resnet152", 60_192_808, 32, 32 / 155, _TORCHVISION, f"{_LAMBDA}: 155 images/s"),
    Model(
        "inception-v3", 23_851_784, 64, 64 / 259, "Keras Applications (without the auxiliary head)", f"{_LAMBDA}: 259 images/s"
    ),
    Model(
        "bert-large",
        340_000_000,
        7,
        7 / 7.56,
        "Devlin et al. 2019",
        "NVIDIA DeepLearningExamples, BERT for PyTorch 19.04: pre-training, one V100 32 GB, batch 7, 7.56 sentences/s",
    ),
    _assumed("alexnet", 61_100_840, 512, 512 * 6 * 0.71e9, _TORCHVISION, "0.71 G multiply-adds forward"),
    _assumed("vgg16", 138_357_544, 64, 64 * 6 * 15.47e9, _TORCHVISION, "15.47 G multiply-adds forward"),
    _assumed("vit-b16", 86_567_656, 32, 32 * 6 * 17.56e9, _TORCHVISION, "17.56 G multiply-adds forward"),
    Model(
        "mobilenet-v2",
        3_504_872,
        64,
        64 / 1000,
        _TORCHVISION,
        "assumption: 1000 images/s, as depthwise convolutions wait for memory",
    ),
    _assumed("bert-base", 110_000_000, 32, 6 * 110e6 * 32 * 128, "Devlin et al. 2019", "sequences of 128 tokens"),
    _assumed("transformer-big", 213_000_000, 32, 6 * 213e6 * 32 * 128, "Vaswani et al. 2017, table 3", "128 tokens a sentence"),
    _assumed("gpt2", 124_439_808, 4, 6 * 124.4e6 * 4 * 1024, "OpenAI's released weights", "sequences of 1024 tokens"),
    _assumed("gpt2-xl", 1_557_611_200, 1, 6 * 1557.6e6 * 1024, "OpenAI's released weights", "sequences of 1024 tokens"),
    Model(
        "dlrm",
        2_368_897,
        2048,
        0.01,
        "the layers of MLPerf's DLRM: 13-512-256-128 and 479-1024-1024-512-256-1, embedding tables sharded",
        "assumption: 10 ms, embedding look-ups included",
    ),
)

MODELS: dict[str, Model] = {model.name: model for model in _ALL}
