"""Options of the details viewer: the same as those of the wrapper that computes the details."""

from nmt.extensions.details.wrappers.options import DetailOptions as DetailOptions
