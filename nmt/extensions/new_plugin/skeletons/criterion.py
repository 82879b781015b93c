"""A criterion: the focal loss, in which tokens that the model already predicts well count less (Lin et al., 2017).

    nmt train --plugin my_criterion.py --criterion my-criterion --data DATA --output RUN
    nmt status RUN

Dimensions: B sentences, T target positions, V vocabulary.
"""

from nmt import opt, options_class, register
from nmt.batch import Batch
from nmt.criteria.base import Criterion, CriterionContext, Loss
from nmt.models.base import Model
from nmt.symbols import PAD


@options_class
class MyCriterionOptions:  # CHANGE: each option becomes a flag, here --focus
    focus: float = opt(2.0, "exponent that lowers the weight of easy tokens; 0 gives cross entropy", minimum=0)


@register("criterion", "my-criterion", MyCriterionOptions)
class MyCriterion(Criterion):
    """Negative log-likelihood, multiplied by (1 - p) ** focus for each token."""

    def __init__(self, options: MyCriterionOptions, context: CriterionContext) -> None:
        self.options = options  # `context` provides the text pipeline, the seed, and `build` for inner components

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """Return sums over the batch, in nats. Training normalises them once per update, over all batches and devices."""
        log_probs = model.log_probs(model(batch).features)  # B T V
        gold = log_probs.gather(-1, batch.target_output[..., None]).squeeze(-1)  # B T
        is_token = batch.target_output != PAD
        # CHANGE: the value that training minimises
        loss = -((1 - gold.exp()) ** self.options.focus * gold * is_token).sum()
        # The perplexity in log lines and validations comes from the reported sum `nll`.
        return Loss.of_target_tokens(batch, loss, nll=-(gold * is_token).sum())
