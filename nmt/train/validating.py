"""The validations of a run: each scores its model, and decides which checkpoint is the best."""

from collections.abc import Callable

from nmt import signals
from nmt.errors import Interrupted
from nmt.log import log
from nmt.train.options import AUTO, MIN_BLEU
from nmt.train.reporting import report_look, report_validation
from nmt.train.run import Run
from nmt.train.saving import save
from nmt.train.validation import FailedOnAllRanks, ValidationResult, validate


def validate_or_save(run: Run, validation: Callable[[Run], None]) -> None:
    """Validate, and check whether a signal came meanwhile. validation: `validate_run` or `look`

    After an error on all ranks, the updates before it are saved.
    """
    try:
        validation(run)
    except Exception as error:
        first = error.error if isinstance(error, FailedOnAllRanks) else error
        if first is not error or run.world.size == 1:
            try:
                save(run, last=True)
                run.world.any(False)  # no rank ends, and the launcher all of them, while the leader writes
            except Exception as second:
                log.warn(f"checkpoint not saved: {second}")
        raise first from None
    run.agree(signals.innermost().received)


def look(run: Run) -> None:
    """Validate a run between its regular validations, because minutes have passed, and report the result.

    It has no other effect: weights, metrics.jsonl, best checkpoint, patience and schedule do not depend on the clock.
    """
    if (result := _result_of_validation(run)) is not None:
        report_look(run, result)


def _result_of_validation(run: Run) -> ValidationResult | None:
    """Validate the run's model; None without a development set, or if a signal interrupted it."""
    options, progress, validation = run.options, run.progress, run.validation
    if validation is None:
        return None
    if not log.live:  # there a bar shows it
        last = "the run's last validation, " if run.finished else "validating "
        run.report.line(f"{last}on {len(validation.dev.corpus):,} pairs of {validation.dev.name}")
    run.context.scorer = model = run.evaluated_model()
    limits = progress.limit.max_micro_batch_tokens, options.precision
    try:
        return validate(model, run.criterion, validation, *limits, run.world)
    except Interrupted:
        return None
    finally:
        run.context.scorer = run.model


def validate_run(run: Run) -> None:
    """Validate and report it; the best model so far, and the last one, are then due to be saved.

    If a signal interrupts the validation, it stays due, and is repeated when the run resumes.
    """
    progress, validation, result = run.progress, run.validation, _result_of_validation(run)
    if validation is None or result is None:
        return
    progress.validation_due = False
    if progress.validation_counts:
        run.schedule.see(result.losses["loss"])
    score = result.metrics.get("bleu")
    if (
        run.settings["best_by"] == AUTO
        and progress.judged_by != "bleu"
        and score is not None
        and score.value > MIN_BLEU
    ):
        progress.judged_by, progress.best = "bleu", None
        run.report.line(
            f"BLEU is above {MIN_BLEU:g}: from now on it decides which checkpoint is the best, not the loss"
        )
    sign = validation.sign(progress.judged_by)
    better = progress.see(sign * result.value(progress.judged_by))
    report_validation(run, result, better, sign)
    progress.save_due |= better or run.finished
