"""Defaults for fine-tuning a trained model. The options class computes them, so the start itself does nothing."""

from nmt import register
from nmt.extensions.methods.starts.options import DataSizesOptions
from nmt.starts.base import Start


@register("start", "data-sizes", DataSizesOptions)
class DataSizes(Start):
    """Adapts updates, learning rate, validations and patience to the data, for --init-from without a preset."""
