"""The page of attention: sentences, kinds, layers and heads to click through, with everything in it and nothing to fetch."""

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nmt.pictures.attention_maps import KINDS, AttentionMaps, quantised
from nmt.pictures.attention_script import SCRIPT

STYLE: Final = """
:root { color-scheme: light dark; --ink: 8 81 156; --paper: #fff; --line: #8886; --lightness: 42% }
@media (prefers-color-scheme: dark) { :root { --ink: 120 190 255; --paper: #15181c; --lightness: 62% } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1em 1.5em; background: var(--paper) }
h1 { font-size: 1.2em; margin: 0 0 .5em } h2 { font-size: 1em; margin: 1em 0 .5em }
nav { display: flex; flex-wrap: wrap; gap: .5em 1em; align-items: center }
select { max-width: min(40em, 90vw) } button, select { font: inherit }
button[aria-pressed=true] { background: rgb(var(--ink)); color: var(--paper) }
.text { margin: .2em 0; max-width: 80em } .note { opacity: .7; font-size: .85em; max-width: 90em }
main { display: grid; grid-template: "choice map" auto "links map" 1fr / auto 1fr; gap: 0 3em }
@media (max-width: 75em) { main { grid-template: "choice" "map" "links" / 100% } }
section { overflow-x: auto; padding: 3px }
#heads { border-spacing: 3px; font-size: .8em } #heads th { font-weight: 600; padding: 0 .3em }
#heads button { display: block; padding: 2px; border: 1px solid var(--line); border-radius: 3px; background: none }
#heads button[aria-pressed=true] { outline: 3px solid rgb(var(--ink)) }
canvas { display: block } #heads canvas, #cells { image-rendering: pixelated }
#map { display: grid; grid-template-columns: auto auto; justify-content: start; padding: 0 6em 3em 0 }
#map, #links { font-size: min(13px, calc(.8 * var(--cell))); line-height: var(--cell) }
.tokens { list-style: none; margin: 0; padding: 0 }
.tokens li { height: var(--cell); padding: 0 .4em; max-width: 14em; overflow: hidden; text-overflow: ellipsis;
             white-space: pre; border-radius: 3px }
.tokens .at { outline: 1px solid rgb(var(--ink)); outline-offset: -1px }
.queries li { text-align: right } .keys li { text-align: left }
#map .keys { display: flex; grid-column: 2; align-items: stretch }
#map .keys li { writing-mode: vertical-rl; transform: rotate(180deg); box-sizing: border-box; width: var(--cell);
                height: auto; max-height: 14em; padding: .4em 0 }
#field { position: relative; outline: 1px solid var(--line) }
#cursor { position: absolute; box-sizing: border-box; width: var(--cell); height: var(--cell);
          outline: 2px solid currentColor; pointer-events: none }
#cursor span { position: absolute; left: 100%; top: 100%; z-index: 1; padding: .1em .5em; white-space: pre; font-size: 13px;
               line-height: 1.5; background: var(--paper); border: 1px solid var(--line); border-radius: 3px }
#cursor.far span { left: auto; right: 100% }
#links { display: flex } #links li:focus-visible { outline: 2px solid rgb(var(--ink)) }
kbd { border: 1px solid var(--line); border-radius: 3px; padding: 0 .3em }
"""
BODY: Final = """
<h1>What the model looked at</h1>
<noscript><p>This page draws with its own script, which this browser does not run.</p></noscript>
<nav>
<label>Sentence <select id="sentence"></select></label>
<span id="kinds" role="group" aria-label="kind of attention"></span>
<label><input type="checkbox" id="stretched"> full ink for the largest weight of each map</label>
</nav>
<p class="text" id="source" dir="auto"></p><p class="text" id="target" dir="auto"></p>
<p class="note">A row of a map is a token that looks, its columns what it looks at; the rows of a translation stand at the
token that is about to be said. Weights are kept to 1/255.<br>
<kbd>&larr;</kbd> <kbd>&rarr;</kbd> head, <kbd>&uarr;</kbd> <kbd>&darr;</kbd> layer, <kbd>p</kbd> <kbd>n</kbd>
previous and next sentence, <kbd>k</kbd> next kind, <kbd>s</kbd> full ink. Point at a cell or a token, or walk the tokens of the
lines with <kbd>Tab</kbd> and the arrow keys.</p>
<main>
<section style="grid-area: choice"><h2>Layers and heads</h2><table id="heads"></table></section>
<section style="grid-area: map"><h2 id="name" aria-live="polite"></h2>
<div id="map"><ul class="tokens keys" id="columns"></ul><ul class="tokens queries" id="rows"></ul>
<div id="field"><canvas id="cells"></canvas><div id="cursor" hidden><span></span></div></div></div></section>
<section style="grid-area: links"><h2>Who looks where, coloured by head</h2>
<div id="links"><ul class="tokens queries" id="lookers"></ul><canvas id="lines"></canvas>
<ul class="tokens keys" id="looked"></ul></div></section>
</main>
"""


def attention_page(attended: Sequence[AttentionMaps]) -> str:
    """A whole page. Its policy lets this one script run, whatever the tokens are, and nothing be fetched."""
    data = json.dumps([_packed(one) for one in attended], separators=(",", ":"))  # ASCII, whatever the tokens are
    # JSON has "<" in strings only; without it no token can end the element that holds the data
    data = data.replace("<", r"\u003c")
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8"><title>What the model looked at</title>',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>{BODY}',
            f'<script type="application/json" id="data">{data}</script>',
            f"<script>{SCRIPT}</script></body></html>\n",
        ]
    )


def _packed(one: AttentionMaps) -> dict[str, Any]:
    """A sentence as the script reads it. weights: bytes, 255 a whole, in the order of the array, by zlib and base64"""
    kinds = {}
    for kind, name in KINDS.items():
        if kind in one.weights:
            weights = one.weights[kind]
            queries, keys = one.labels(kind)
            packed = base64.b64encode(zlib.compress(np.ascontiguousarray(quantised(weights)).tobytes())).decode()
            sizes = {"layers": weights.shape[0], "heads": weights.shape[1], "first": one.first_shown(kind)}
            kinds[kind] = {"name": name, "queries": queries, "keys": keys, **sizes, "weights": packed}
    return {"source": " ".join(one.source), "target": " ".join(one.target), "kinds": kinds}
