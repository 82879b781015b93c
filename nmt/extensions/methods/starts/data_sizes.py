"""Fine-tuning: defaults for runs that start with a trained model. The options class has them, and there is nothing else to do."""

from nmt import register
from nmt.extensions.methods.starts.options import DataSizesOptions
from nmt.starts.base import Start


@register("start", "data-sizes", DataSizesOptions)
class DataSizes(Start):
    """With --init-from and no preset, sizes that fit the data: updates, learning rate, validations and patience."""
