"""For metrics that take one list of references."""

from nmt.errors import UserError
from nmt.metrics.base import Lines, References


def only_reference(metric: str, references: References) -> Lines:
    """The one list of references that a metric takes. Raises UserError for several. metric: its name"""
    if len(references) != 1:
        raise UserError(f"metric {metric}: takes one reference, and {len(references)} are given (give one --reference)")
    return references[0]
