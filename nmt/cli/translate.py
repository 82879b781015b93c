"""`nmt translate`: text to text, a line for a line."""

import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import combinations
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from nmt import registry
from nmt.cli.command import Command, Parts
from nmt.dist import MAX_WAIT_MINUTES, World
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.options import REQUIRED, opt
from nmt.signals import Signals
from nmt.text.corpus import read_lines

if TYPE_CHECKING:  # torch is imported when the command runs
    import torch

    from nmt.cli.drawings import Drawings
    from nmt.cli.translations import Show
    from nmt.decoders.base import Decoder
    from nmt.text.pipeline import Pipeline
    from nmt.translate.rerank import Reranker
    from nmt.translate.translator import Translator

MOST_REPLICAS: Final = 16  # unless more are asked for: each has a batch's numbers in memory
FILES: Final = "input", "output", "attention", "beam_graph"
PACKED: Final = ".gz", ".xz", ".bz2", ".zst"


@dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    model: tuple[str, ...] = opt(
        REQUIRED,
        "model folder, or run folder (its best checkpoint); several are asked together",
        aliases=("m", "path", "models"),
    )
    model_weights: tuple[float, ...] = opt((), "weight of each of several models; none: all the same")
    ensemble: Literal["log-probabilities", "probabilities"] = opt(
        "log-probabilities", "what the mean of several models is taken of (Marian's and Sockeye's, or fairseq's)"
    )
    rerank: tuple[str, ...] = opt(
        (),
        "model folder or run that ranks the candidates of the search again: of the same direction, from right to left too "
        "(nmt prepare --right-to-left), of the other direction, or a language model; several are heard together",
    )
    rerank_weights: tuple[float, ...] = opt(
        (), "weight of the search's own score, then of each --rerank; none: all the same"
    )
    rerank_candidates: int | None = opt(
        None, "with --rerank: candidates that the search gives; none: as many as its beam holds, else --n-best"
    )
    input: str = opt("-", "file to translate, plain or compressed; - is stdin", aliases=("i",))
    output: str = opt("-", "file for the translations; - is stdout", aliases=("o",))
    batch_tokens: int | Literal["auto"] = opt(
        "auto",
        "source tokens of a batch, padding counted; auto: what is fast and fits into memory. It changes no result",
    )
    buffer_size: int = opt(2000, "lines that are read ahead and sorted by length; less where no line is waiting")
    max_source_length: int = opt(1024, "tokens of a line; a longer one is cut there, and named")
    strict: bool = opt(False, "end with code 3 at bytes that are not UTF-8, instead of replacing them")
    raw_tokens: bool = opt(False, "print the tokens as the model says them, with a space between")
    input_form: Literal["text", "prefix", "phrases", "json"] = opt(
        "text",
        "what a line is: text; text ||| how its translation begins; text ||| phrase ||| phrase that it contains (with --decoder "
        "constrained-beam); or a JSON object with text, target_prefix, constraints, avoid, whose other fields are handed on",
    )
    avoid: str | None = opt(None, "file of words and phrases, one a line, that no translation contains as whole words")
    word_scores: bool = opt(False, "print nats of each word and of the end (with --raw-tokens of each token)")
    alignment: str | None = opt(
        None,
        "print which source word each word looks at: hard (Pharaoh's i-j), soft (all weights), or the weight above which "
        "two words are a pair; with --raw-tokens between tokens",
    )
    attention: str | None = opt(
        None,
        "draw where the model looks: into a page (FILE.html) or, of the first line, a picture (.svg, .png); or `terminal`, a "
        "map of each line on stderr",
    )
    beam_graph: str | None = opt(
        None, "write what the beam held at each step: a page to look at (FILE.html), or for programs (FILE.json)"
    )
    attention_lines: int = opt(100, "with --attention or --beam-graph: lines that are drawn at most")
    replace_unk: bool = opt(False, "put the source word it looks at for each unknown word")
    unk_dictionary: str | None = opt(None, "with --replace-unk: file of a source word and its translation a line")
    json: bool = opt(False, "print a JSON object a line: text, and candidates with tokens, log_prob (nats) and score")
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    devices: int = opt(1, "processes on this machine, a device each, that share the lines out; the order stays")
    replicas: int | None = opt(
        None,
        "batches that are searched side by side, each with its part of the threads; none: on CPUs a thread each, to 16",
    )
    timeout: float = opt(10.0, "minutes that one of several devices may be waited for")
    precision: Literal["fp32", "bf16", "int8"] = opt(
        "fp32", "fp32; bf16 products by autocast; or int8, weights of 8 bits and products of 8-bit numbers, on CPUs"
    )
    compile: bool = opt(
        False,
        "let torch.compile fuse what each layer does at a step; for GPUs; needs a compiler, takes a minute at first",
    )
    shortlist: str | None = opt(None, "file of nmt shortlist: search only among words that may translate the source's")
    threads: int | None = opt(None, "threads for CPU work; none leaves it to torch")
    matmul: Literal["auto", "torch", "onednn", "numpy"] = opt(
        "auto", "what multiplies float32 on a CPU; auto: measured for each shape, when there is more than one batch"
    )

    def __post_init__(self) -> None:
        if self.batch_tokens != "auto" and self.batch_tokens < 1:
            raise ValueError(f"batch_tokens is {self.batch_tokens}; it must be at least 1, or auto")
        for name in ("buffer_size", "max_source_length", "devices", "attention_lines"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 < self.timeout <= MAX_WAIT_MINUTES:
            raise ValueError(f"timeout is {self.timeout}; it must be above 0, and at most {MAX_WAIT_MINUTES:,}")
        if self.alignment not in (None, "hard", "soft") and not _is_share(self.alignment):
            raise ValueError(f"alignment is {self.alignment}; it must be hard, soft, or a number from 0 to 1")
        if self.shortlist is not None and len(self.model) > 1:
            raise ValueError("a shortlist is for one model")
        if self.unk_dictionary is not None and not self.replace_unk:
            raise ValueError("unk_dictionary is of no use without replace_unk")
        if self.model_weights and len(self.model) == 1:
            raise ValueError("model_weights are of no use with one model")
        if self.replace_unk and self.raw_tokens:
            raise ValueError("replace_unk puts words into a text; with raw_tokens there is none")
        if self.attention is not None and self.devices > 1:
            raise ValueError("attention is drawn on one device")
        if (self.rerank_weights or self.rerank_candidates is not None) and not self.rerank:
            raise ValueError("rerank_weights and rerank_candidates are of no use without rerank")
        if self.beam_graph is not None and (self.devices > 1 or self.shortlist is not None):
            raise ValueError("beam_graph is of a search on one device, among all words")
        files = {name: realpath(getattr(self, name)) for name in FILES if getattr(self, name) not in (None, "-")}
        for one, other in combinations(files, 2):
            if files[one] == files[other]:
                raise ValueError(f"{one} and {other} are one file, {quoted(getattr(self, one))}")
        if self.output.endswith(PACKED):
            raise ValueError(
                f"output is {quoted(self.output)}; translations are written plain (send stdout through a packer)"
            )
        for name in ("threads", "replicas", "rerank_candidates"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1, or none")


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def run(options: TranslateOptions, parts: Parts) -> int:
    """Translate the input, as many lines out as in; 5 when a line could not be translated."""
    world = World.from_environment()
    if options.devices > 1 and world.size == 1:
        from nmt.cli.launch import flags_of_each, launch

        of_each = flags_of_each(options.devices, options.device, options.threads)
        return launch(options.devices, ["translate", *parts.argv, *of_each], "what was printed is whole lines")
    log.quiet |= not world.leads
    from nmt.nn.linear import using

    with using(options.matmul), world.joined("cpu", options.timeout):  # what is exchanged is text
        return _lead(options, parts, world) if world.leads else _serve(options, parts, world)


def _translator(options: TranslateOptions, parts: Parts, world: World) -> "Translator":
    import torch

    from nmt.data.shortlist import Shortlist
    from nmt.device import Memory, Precision, autocast, choose_device, keep_pages, use_threads
    from nmt.translate.alignment import read_dictionary
    from nmt.translate.batch_size import batch_tokens
    from nmt.translate.replicas import by_processes
    from nmt.translate.results import Detail
    from nmt.translate.translator import Translator, load_scorer

    keep_pages()
    decoder, device = _decoder(options, parts), choose_device(options.device, world.local_rank)
    threads = options.threads or torch.get_num_threads()
    replicas = options.replicas or (min(threads, MOST_REPLICAS) if device.type == "cpu" else 1)
    each = max(1, threads // replicas)
    use_threads(1 if replicas > 1 and by_processes(device.type) else each)
    if options.input_form == "phrases" and not decoder.takes_phrases:
        raise UserError("--input-form phrases needs a search that holds to them (give --decoder constrained-beam)")
    if options.shortlist is not None and not decoder.takes_shortlist:
        raise UserError("--shortlist is not for sampling and mbr (give --decoder beam, or another)")
    dictionary = read_dictionary(Path(options.unk_dictionary)) if options.unk_dictionary else {}
    detail = Detail(
        options.word_scores,
        options.alignment is not None,
        options.raw_tokens,
        dictionary if options.replace_unk else None,
    )
    avoid = tuple(line for line in read_lines(Path(options.avoid)) if line.strip()) if options.avoid else ()
    folders = list(map(Path, options.model))
    pipeline, scorer = load_scorer(folders, device, options.model_weights, options.ensemble, options.precision)
    if avoid and pipeline.target.settings.right_to_left:
        raise UserError("--avoid: the model writes from right to left, and cannot be told what to avoid")
    precision: Precision = "fp32" if options.precision == "int8" else options.precision
    if options.compile:
        with autocast(device, precision):
            scorer.compile_steps()
    shortlist = None
    if options.shortlist is not None:
        shortlist = Shortlist.load(Path(options.shortlist), pipeline.hash, (pipeline.source.size, pipeline.target.size))
    size = options.batch_tokens
    if size == "auto":
        beside = world.local_size if device.type == "cpu" else 1  # that have the same memory
        size = batch_tokens(scorer, Memory(device), decoder.paths, replicas * beside)
    return Translator(
        pipeline,
        scorer,
        decoder,
        size,
        max_source_length=options.max_source_length,
        precision=precision,
        detail=detail,
        avoid=avoid,
        replicas=replicas,
        threads=each,
        shortlist=shortlist,
        reranker=_reranker(options, parts, decoder, pipeline, device, size) if options.rerank else None,
    )


def _decoder(options: TranslateOptions, parts: Parts) -> "Decoder":
    """The search; where its candidates are ranked again it gives more of them than are shown."""
    if not options.rerank:
        decoder: Decoder = parts.build("decoder")
        return decoder
    given = parts.options("decoder")
    count: int = max(getattr(given, "n_best", 1), options.rerank_candidates or getattr(given, "beam_size", 1))
    if not hasattr(given, "n_best") or count == 1:
        told = "the search gives one translation of a line, which nothing is to be ranked with"
        instead = "--rerank-candidates" if hasattr(given, "n_best") else "--decoder beam"
        raise UserError(f"--rerank: {told} (give {instead})")
    try:
        more = replace(given, n_best=count)
    except ValueError as error:
        raise UserError(f"--rerank-candidates: {error}") from None
    several: Decoder = registry.find("decoder", parts.chosen["decoder"]).cls(more)
    return several


def _reranker(
    options: TranslateOptions, parts: Parts, decoder: "Decoder", pipeline: "Pipeline", device: "torch.device", size: int
) -> "Reranker":
    """What puts the candidates of a search into another order. size: tokens of a batch"""
    from nmt.translate.rerank import Reranker, RerankModel

    rerank_models = [RerankModel.load(Path(folder), device, pipeline) for folder in options.rerank]
    shown = parts.options("decoder").n_best
    return Reranker(rerank_models, options.rerank_weights, decoder, shown, size, options.max_source_length)


def _serve(options: TranslateOptions, parts: Parts, world: World) -> int:
    """Translate what the leader gives; a signal ends the leader, and by it the others."""
    from nmt.translate.distributed import serve

    with Signals() as signals:
        serve(_translator(options, parts, world), world, signals)
    return 0


def _lead(options: TranslateOptions, parts: Parts, world: World) -> int:
    from nmt.translate.distributed import leading
    from nmt.translate.stream import new_output, translate_stream
    from nmt.translate.windows import open_source, place_of

    with open_source(options.input) as source:
        drawings = _drawings(options)
        translator = _translator(options, parts, world)
        show = _shower(options, translator)
        show = drawings.beside(show, translator) if drawings else show
        on = f"{world.size} x {translator.device.type}" if world.size > 1 else f"{translator.device}"
        batches = f"batches of {translator.batch_tokens:,} tokens"
        log.info(f"{' + '.join(options.model)}: {translator.decoder.signature} on {on}, {options.precision}, {batches}")
        place = place_of(options.input)
        settings = (options.buffer_size, place, options.strict)
        shared_out = leading(translator, world, 60 * options.timeout) if world.size > 1 else nullcontext(translator)
        opened = new_output(Path(options.output)) if options.output != "-" else nullcontext(sys.stdout.buffer)
        with opened as output, shared_out as shared:
            bad = translate_stream(shared, source, output, options.input_form, show, *settings)
    counts = {"not UTF-8": bad, "cut": shared.cut.count, "not translated": shared.failed.count}
    if any(counts.values()):
        log.warn(f"{place}: lines " + ", ".join(f"{what}: {count:,}" for what, count in counts.items() if count))
    if drawings:
        drawings.write()
    return 5 if shared.failed.count else 0


def _drawings(options: TranslateOptions) -> "Drawings | None":
    if options.attention is None and options.beam_graph is None:
        return None
    from nmt.cli.drawings import Drawings

    return Drawings(options.attention, options.beam_graph, options.attention_lines)


def _shower(options: TranslateOptions, translator: "Translator") -> "Show":
    """How a translation is printed."""
    from nmt.cli.translations import Printer

    printer = Printer(translator.pipeline.target, options.alignment, options.word_scores, options.raw_tokens)
    show = printer.as_n_best if translator.n_best > 1 else printer.as_text
    return printer.as_json if options.json or options.input_form == "json" else show


COMMAND = Command(
    "translate",
    "Translate lines of text, from stdin to stdout or from file to file. With --n-best N each line gives up to N lines in "
    "Moses' form, `number ||| translation ||| LogProb= nats ||| score`, numbers from 0.",
    TranslateOptions,
    run,
    kinds=("decoder",),
)
