"""Models of other toolkits for tests: random weights, and their probabilities in float64 by numpy, without code of ours."""

import re

import numpy as np

D, INNER, HEADS, LAYERS = 16, 24, 4, 2
TEXT = ["a man sees the dog .", "the dog sees two men .", "two women eat .", "a dog eats the food of two men ."]
POST = {"transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-top": ""}
PRE = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}
SSRU = {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"}
ALL, TARGET = {"tied-embeddings-all": True}, {"tied-embeddings": True}
NETWORKS = [
    {**POST, **ALL, "transformer-ffn-activation": "swish"},
    {**PRE, **ALL, "transformer-ffn-activation": "relu"},
    {**PRE, **TARGET, "transformer-ffn-activation": "swish"},
    {**POST, "transformer-ffn-activation": "relu"},
    {**POST, **TARGET, "transformer-ffn-activation": "relu", "output-omit-bias": True},
    {**POST, **ALL, **SSRU, "transformer-ffn-activation": "relu"},
    {**PRE, **SSRU, "transformer-ffn-activation": "swish"},
]


def settings_of(**more: object) -> dict[str, object]:
    sizes = {"dim-emb": D, "transformer-dim-ffn": INNER, "transformer-heads": HEADS}
    depths = {"enc-depth": LAYERS, "dec-depth": LAYERS, "transformer-ffn-depth": 2}
    return {"type": "transformer", **sizes, **depths, **more}


def arrays_of(settings, source: int, target: int) -> dict[str, np.ndarray]:
    """Random arrays by the names that Marian writes for its settings. source, target: entries of the vocabularies"""
    chance = np.random.default_rng(1)
    arrays: dict[str, np.ndarray] = {}

    def add(name: str, *shape: int) -> None:
        arrays[name] = chance.normal(0, 0.3, shape).astype(np.float32)

    def norm(name: str) -> None:
        add(f"{name.replace('@', 'scale')}", 1, D)
        add(f"{name.replace('@', 'bias')}", 1, D)

    ending = "_pre" if settings["transformer-preprocess"] else ""
    for side in ("encoder", "decoder"):
        for layer in range(1, LAYERS + 1):
            is_recurrent = side == "decoder" and "dec-cell" in settings
            if is_recurrent:
                for name, shape in (("W", (D, D)), ("Wf", (D, D)), ("bf", (1, D))):
                    add(f"{side}_l{layer}_rnn_{name}", *shape)
                norm(f"{side}_l{layer}_rnn{'' if ending else '_ffn'}_ln_@{ending}")
            for kind in ("self", "context")[is_recurrent : 1 + (side == "decoder")]:
                for letter in "qkvo":
                    add(f"{side}_l{layer}_{kind}_W{letter}", D, D)
                    add(f"{side}_l{layer}_{kind}_b{letter}", 1, D)
                norm(f"{side}_l{layer}_{kind}_Wo_ln_@{ending}")
            for number, shape in ((1, (D, INNER)), (2, (INNER, D))):
                add(f"{side}_l{layer}_ffn_W{number}", *shape)
                add(f"{side}_l{layer}_ffn_b{number}", 1, shape[1])
            norm(f"{side}_l{layer}_ffn_ffn_ln_@{ending}")
        if ending:
            norm(f"{side}_top_ln_@")
    if settings.get("tied-embeddings-all"):
        add("Wemb", target, D)
    else:
        add("encoder_Wemb", source, D)
        add("decoder_Wemb", target, D)
    if not (settings.get("tied-embeddings-all") or settings.get("tied-embeddings")):
        add("decoder_ff_logit_out_Wt", target, D)
    if not settings.get("output-omit-bias"):
        add("decoder_ff_logit_out_b", 1, target)
    return arrays


def positions_of_marian(count: int) -> np.ndarray:
    angles = np.arange(count)[:, None] * np.exp(-np.log(10000) * np.arange(D // 2) / (D / 2 - 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


def reference(
    arrays, settings, source: list[int], target: list[int], positions=positions_of_marian, epsilon=1e-6, first=None
) -> np.ndarray:
    """Nats of the target ids given the source ids, both with EOS at the end, by Marian's training graph.

    positions: count -> table (count, D); first: the decoder's first input, an id, None for zeros
    """
    values = {name: array.astype(np.float64) for name, array in arrays.items()}
    pre, width = bool(settings["transformer-preprocess"]), D // HEADS

    def norm(rows, name):
        centred = rows - rows.mean(1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(1, keepdims=True) + epsilon)
        return scaled * values[name.replace("@", "scale")] + values[name.replace("@", "bias")]

    def attention(name, queries, memory, mask):
        q, k, v = (
            rows @ values[f"{name}_W{letter}"] + values[f"{name}_b{letter}"]
            for letter, rows in zip("qkv", (queries, memory, memory), strict=True)
        )
        heads = []
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            weights = np.exp(q[:, part] @ k[:, part].T / np.sqrt(width) + mask)
            heads.append(weights / weights.sum(1, keepdims=True) @ v[:, part])
        return np.concatenate(heads, 1) @ values[f"{name}_Wo"] + values[f"{name}_bo"]

    def recurrence(name):
        def work(rows):
            cell, outputs = np.zeros(D), []
            for row in rows:
                forget = 1 / (1 + np.exp(-(row @ values[f"{name}_Wf"] + values[f"{name}_bf"][0])))
                cell = forget * cell + (1 - forget) * (row @ values[f"{name}_W"])
                outputs.append(np.maximum(cell, 0))
            return np.array(outputs)

        return work

    def sublayer(rows, name, work):
        if pre:
            return rows + work(norm(rows, f"{name}_ln_@_pre"))
        return norm(rows + work(rows), f"{name}_ln_@")

    def feed_forward(name):
        def work(rows):
            inner = rows @ values[f"{name}_W1"] + values[f"{name}_b1"]
            is_relu = settings["transformer-ffn-activation"] == "relu"
            inner = np.maximum(inner, 0) if is_relu else inner / (1 + np.exp(-inner))
            return inner @ values[f"{name}_W2"] + values[f"{name}_b2"]

        return work

    tables = [values.get(f"{side}_Wemb", values.get("Wemb")) for side in ("encoder", "decoder")]
    memory = tables[0][source] * np.sqrt(D) + positions(len(source))
    for layer in range(1, LAYERS + 1):
        name = f"encoder_l{layer}"
        memory = sublayer(memory, f"{name}_self_Wo", lambda rows, name=name: attention(f"{name}_self", rows, rows, 0))
        memory = sublayer(memory, f"{name}_ffn_ffn", feed_forward(f"{name}_ffn"))
    memory = norm(memory, "encoder_top_ln_@") if pre else memory
    start = np.zeros(D) if first is None else tables[1][first]
    rows = np.concatenate([start[None], tables[1][target[:-1]]]) * np.sqrt(D) + positions(len(target))
    mask = np.triu(np.full((len(target), len(target)), -np.inf), 1)
    for layer in range(1, LAYERS + 1):
        name = f"decoder_l{layer}"
        if "dec-cell" in settings:
            rows = sublayer(rows, f"{name}_rnn" if pre else f"{name}_rnn_ffn", recurrence(f"{name}_rnn"))
        else:
            rows = sublayer(
                rows, f"{name}_self_Wo", lambda rows, name=name: attention(f"{name}_self", rows, rows, mask)
            )
        rows = sublayer(
            rows, f"{name}_context_Wo", lambda rows, name=name: attention(f"{name}_context", rows, memory, 0)
        )
        rows = sublayer(rows, f"{name}_ffn_ffn", feed_forward(f"{name}_ffn"))
    rows = norm(rows, "decoder_top_ln_@") if pre else rows
    logits = rows @ values.get("decoder_ff_logit_out_Wt", tables[1]).T + values.get("decoder_ff_logit_out_b", 0)
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return log_probs[np.arange(len(target)), target]


LINEARS = {
    "self": {
        "q": ("self_attn", "q_proj"),
        "k": ("self_attn", "k_proj"),
        "v": ("self_attn", "v_proj"),
        "o": ("self_attn", "out_proj"),
    },
    "context": {
        "q": ("encoder_attn", "q_proj"),
        "k": ("encoder_attn", "k_proj"),
        "v": ("encoder_attn", "v_proj"),
        "o": ("encoder_attn", "out_proj"),
    },
    "ffn": {"1": ("", "fc1"), "2": ("", "fc2")},
}
NORM_NAMES = {"self_Wo": "self_attn_layer_norm", "context_Wo": "encoder_attn_layer_norm", "ffn_ffn": "final_layer_norm"}


def torch_layers(arrays) -> dict[str, np.ndarray]:
    """The arrays of the layers by the names that fairseq and Hugging Face have in common, without a prefix."""
    found = {}
    for name, array in arrays.items():
        if not (parts := re.fullmatch(r"(encoder|decoder)_l(\d+)_(.+)", name)):
            continue
        prefix, rest = f"{parts[1]}.layers.{int(parts[2]) - 1}", parts[3]
        if "_ln_" in rest:
            block, kind = rest.split("_ln_")
            found[f"{prefix}.{NORM_NAMES[block]}.{'weight' if kind.startswith('scale') else 'bias'}"] = array.reshape(
                -1
            )
        else:
            block, letter = rest.split("_")
            module, own = LINEARS[block][letter[1]]
            path = ".".join(filter(None, (prefix, module, own)))
            found[f"{path}.{'weight' if letter[0] == 'W' else 'bias'}"] = (
                array.T if letter[0] == "W" else array.reshape(-1)
            )
    return {name: np.ascontiguousarray(array) for name, array in found.items()}
