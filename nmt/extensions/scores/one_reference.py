"""A check for metrics that support only one reference."""

from nmt.errors import UserError
from nmt.metrics.base import Lines, References


def only_reference(metric: str, references: References) -> Lines:
    """Return the single list of references. Raises UserError if there are several. metric: name of the metric"""
    if len(references) != 1:
        raise UserError(
            f"metric {metric} supports only one reference, not {len(references)} (use a single --reference)"
        )
    return references[0]
