"""The first layers of a model as a model of their own, for one that was trained at all depths."""

from dataclasses import replace

from nmt import registry
from nmt.checkpoint import LoadedModel, NoRandomWeights, take_weights, weights_of
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.options import flag_of


def first_layers(loaded: LoadedModel, encoder: int | None, decoder: int | None) -> LoadedModel:
    """The model with its first layers alone, and not calibrated; None keeps all of a stack.

    Raises UserError for a model without `depths`, for more layers than it has, and for fewer than its options allow.
    """
    if (depths := loaded.model.depths) is None:
        raise UserError(
            f"--encoder-layers, --decoder-layers: {quoted(loaded.folder)}: has no depth to choose (leave them out)"
        )
    wanted = {}
    for name, given, depth in zip(("encoder_layers", "decoder_layers"), (encoder, decoder), depths, strict=True):
        if given is not None and given > depth:
            raise UserError(f"{flag_of(name)} {given}: {quoted(loaded.folder)} has {depth} (give fewer)")
        wanted[name] = given or depth
    facts = replace(loaded.facts, options={**loaded.facts.options, **wanted})
    try:
        registry.choose("model", facts.model, facts.options)
    except UserError as error:
        raise UserError(f"--encoder-layers, --decoder-layers: too few for {quoted(loaded.folder)}: {error}") from None
    with NoRandomWeights():
        model = facts.build(loaded.folder)
    weights = weights_of(loaded.model)
    take_weights(model, {name: weights[name] for name in weights_of(model)}, loaded.folder)
    if loaded.temperature is not None:
        log.warn(
            f"{quoted(loaded.folder)}: with fewer layers it is not calibrated (nmt score --calibrate fits it again)"
        )
    return replace(loaded, model=model.eval(), facts=facts, temperature=None)
