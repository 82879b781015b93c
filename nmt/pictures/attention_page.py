"""The page of attention: sentences, kinds, layers and heads to click through, with everything in it and nothing to fetch."""

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from string import Template
from typing import Any

import numpy as np

from nmt.pictures.attention_maps import KINDS, AttentionMaps
from nmt.pictures.page import read_asset


def attention_page(sentences: Sequence[AttentionMaps]) -> str:
    """A whole page. Its policy allows this one script, whatever the tokens are, and forbids every request."""
    # ASCII, whatever the tokens are; JSON has "<" in strings only: escaped, no token can end the element of the data
    data = json.dumps(list(map(_packed, sentences)), separators=(",", ":")).replace("<", r"\u003c")
    script = read_asset("attention.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    page = Template(read_asset("attention.html"))
    return page.substitute(policy=policy, style=read_asset("attention.css"), data=data, script=script)


def _packed(maps: AttentionMaps) -> dict[str, Any]:
    """A sentence as the script reads it. weights: bytes, in 1/255, in the order of the array, by zlib and base64"""
    kinds = {}
    for kind, name in KINDS.items():
        if kind in maps.weights:
            weights = maps.weights[kind]
            queries, keys = maps.labels(kind)
            levels = np.rint(255 * weights.clip(0, 1)).astype(np.uint8)
            packed = base64.b64encode(zlib.compress(levels.tobytes())).decode()
            sizes = {"layers": weights.shape[0], "heads": weights.shape[1], "first": maps.first_shown(kind)}
            kinds[kind] = {"name": name, "queries": queries, "keys": keys, **sizes, "weights": packed}
    return {"source": " ".join(maps.source), "target": " ".join(maps.target), "kinds": kinds}
