"""The options of details, which the wrapper that computes them has too."""

from nmt.extensions.details.wrappers.options import DetailOptions as DetailOptions
