"""The validations of a run: each scores the model and helps to select the best checkpoint."""

from nmt.errors import Interrupted
from nmt.log import log
from nmt.options import AUTO
from nmt.train.options import MIN_BLEU
from nmt.train.reporting import report_validation
from nmt.train.run import Run
from nmt.train.saving import save
from nmt.train.validation import FailedOnAllRanks, ValidationResult, validate


def validate_run(run: Run) -> None:
    """Validate a run, and agree across ranks on whether a signal came meanwhile. An interrupted regular validation stays due.

    The result of a validation that is due only by the clock is logged and has no other effect: weights, metrics.jsonl, the best
    checkpoint, patience and schedule do not depend on the clock. After an error on all ranks, the previous updates are saved.
    """
    try:
        if (result := _result(run)) is not None:
            if run.progress.validation_due:
                _judge(run, result)
            else:
                report_validation(run, result, "extra validation due by time; it does not affect the best checkpoint")
    except Exception as error:
        first = error.error if isinstance(error, FailedOnAllRanks) else error
        if first is not error or run.world.size == 1:
            try:
                save(run, last=True)
                run.world.any(False)  # wait for the leader: when the first rank exits, the launcher stops the others
            except Exception as second:
                log.warn(f"checkpoint not saved: {second}")
        raise first from None
    run.agree()


def _result(run: Run) -> ValidationResult | None:
    """Validate the run's model. Returns None without a validation set, or if a signal interrupted it."""
    options, validation = run.options, run.validation
    if validation is None:
        return None
    if not log.live:  # a live terminal shows a progress bar instead
        last = "last validation" if run.finished else "validating"
        run.report.line(f"{last} on {len(validation.dev.corpus):,} pairs of {validation.dev.name}")
    run.context.scorer = model = run.evaluated_model()
    limits = run.progress.limit.max_micro_batch_tokens, options.precision
    try:
        return validate(model, run.criterion, validation, *limits, run.world)
    except Interrupted:
        return None
    finally:
        run.context.scorer = run.model


def _judge(run: Run, result: ValidationResult) -> None:
    """Record and report a regular validation. A save is then due if the model is the best so far or the run ends."""
    progress, bleu = run.progress, result.metrics.get("bleu")
    assert run.validation is not None
    progress.validation_due = False
    if progress.validation_counts:
        run.schedule.see(result.losses["loss"])
    is_auto = run.settings["best_by"] == AUTO and progress.judged_by != "bleu"
    if is_auto and bleu is not None and bleu.value > MIN_BLEU:
        progress.judged_by, progress.best = "bleu", None
        run.report.line(f"BLEU exceeds {MIN_BLEU:g}: from now on, BLEU instead of the loss selects the best checkpoint")
    sign = run.validation.sign(progress.judged_by)
    better = progress.see(sign * result.value(progress.judged_by))
    run.report.record(
        {"update": progress.update, **{f"valid_{name}": value for name, value in result.numbers().items()}}
    )
    best = "none" if progress.best is None else f"{sign * progress.best:.4f}"
    times = f" in {progress.stalled} validation{'' if progress.stalled == 1 else 's'}" if progress.stalled else ""
    state = "new best" if better else f"no new best{times} (best {progress.judged_by}: {best})"
    report_validation(run, result, state)
    progress.save_due |= better or run.finished
