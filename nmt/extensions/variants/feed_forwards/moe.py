"""Mixtures of experts (Shazeer et al., 2017) as feed-forward networks in a Transformer."""

from nmt import register
from nmt.extensions.variants.feed_forwards.options import ExpertOptions
from nmt.extensions.variants.nn.moe import ExpertShape, MixtureOfExperts
from nmt.feed_forwards.base import FeedForward, FeedForwardShape
from nmt.feed_forwards.dense import DenseFeedForward


@register("ffn", "moe", ExpertOptions)
class ExpertFeedForward(MixtureOfExperts):
    """Mixtures of experts in every n-th layer (Lepikhin et al., 2021), with dense networks in the other layers."""

    training_options = frozenset({"importance_weight", "load_weight"})

    def __init__(self, options: ExpertOptions, shape: FeedForwardShape) -> None:
        super().__init__(ExpertShape.of(options, shape.width, shape.inner, shape.dropout))

    @classmethod
    def for_layer(cls, options: ExpertOptions, shape: FeedForwardShape, number: int) -> FeedForward:
        """See FeedForward."""
        return DenseFeedForward(options, shape) if number % options.expert_every else cls(options, shape)
