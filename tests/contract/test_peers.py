"""Command lines of other toolkits work after one correction: the line that the errors suggest can be read."""

import shlex
from pathlib import Path

import pytest

from nmt.cli import main

LINES = {
    "fairseq": [
        "preprocess --source-lang de --target-lang en --trainpref data/train --validpref data/valid --testpref data/test "
        "--destdir data-bin --workers 20 --joined-dictionary --nwordssrc 32000 --thresholdtgt 2",
        "fairseq-preprocess -s en -t fr --trainpref x --destdir d --srcdict dict.en.txt --tgtdict dict.fr.txt --bpe "
        "sentencepiece",
        "train data-bin/wmt16 --arch transformer_vaswani_wmt_en_de_big --share-all-embeddings --optimizer adam "
        "--adam-betas '(0.9, 0.98)' --clip-norm 0.0 --lr-scheduler inverse_sqrt --warmup-init-lr 1e-07 --warmup-updates "
        "4000 --lr 0.0005 --stop-min-lr 1e-09 --dropout 0.3 --weight-decay 0.0 --criterion label_smoothed_cross_entropy "
        "--label-smoothing 0.1 --max-tokens 3584 --fp16 --update-freq 16 --save-dir checkpoints",
        "fairseq-train data-bin/iwslt14 --task translation -s de -t en --arch transformer_iwslt_de_en --lr 5e-4 "
        "--lr-scheduler inverse_sqrt --eval-bleu --eval-bleu-args '{\"beam\": 5}' --eval-bleu-detok moses "
        "--eval-bleu-remove-bpe --best-checkpoint-metric bleu --maximize-best-checkpoint-metric --no-epoch-checkpoints "
        "--keep-last-epochs 5 --save-dir ck",
        "generate data-bin --path ck/checkpoint_best.pt --beam 5 --lenpen 0.6 --remove-bpe --batch-size 128 --gen-subset "
        "test --source-lang de --target-lang en --quiet",
        "fairseq-interactive data-bin --path ck/best.pt --beam 4 --nbest 4 --buffer-size 1024 --input in.txt --tokenizer "
        "moses --bpe subword_nmt --bpe-codes codes --max-len-b 200 --no-repeat-ngram-size 3 --fp16",
        "average_checkpoints.py --inputs checkpoints --num-epoch-checkpoints 5 --output avg",
        "fairseq-score --sys hyp.txt --ref ref.txt --sacrebleu",
    ],
    "Marian": [
        "marian --type transformer --model model.npz --train-sets corpus.en corpus.de --vocabs vocab.spm vocab.spm "
        "--dim-vocabs 32000 32000 --mini-batch-fit -w 10000 --maxi-batch 1000 --early-stopping 10 --cost-type "
        "ce-mean-words --valid-freq 5000u",
        "train -t corpus.en corpus.de -v vocab.en vocab.de -m model.npz --devices 0 1 2 3 --sync-sgd --after 10e "
        "--learn-rate 0.0003 --lr-warmup 16000 --lr-decay-inv-sqrt 16000 --optimizer-params 0.9 0.98 1e-09 --clip-norm 5 "
        "--exponential-smoothing",
        "train --data d --output o --enc-depth 6 --dec-depth 6 --dim-emb 512 --transformer-heads 8 --transformer-dim-ffn "
        "2048 --transformer-postprocess dan --tied-embeddings-all --transformer-dropout 0.1 --label-smoothing 0.1 "
        "--workspace 9500",
        "train --data d --output o --disp-freq 500u --save-freq 5000 --valid-metrics bleu chrf --valid-mini-batch 16 "
        "--beam-size 6 --normalize 0.6 --log train.log --valid-log valid.log --overwrite --keep-best --seed 1111 --fp16 "
        "--quiet-translation",
        "marian-decoder -m model.npz -v vocab.en vocab.de -i in.txt -o out.txt -b 6 -n 0.6 --mini-batch 64 --maxi-batch "
        "100 --maxi-batch-sort src -w 4000 -d 0 --quiet-translation",
        "translate --models a.npz b.npz --weights 1 1 --vocabs v v --beam-size 12 --normalize --n-best --word-scores "
        "--cpu-threads 8",
        "marian-scorer -m model.npz -v v.spm v.spm -t src.txt trg.txt --cpu-threads 4 --summary cross-entropy",
        "marian-vocab --output vocab.yml --max-size 32000 -s en -t de --train corpus",
    ],
    "OpenNMT": [
        "onmt_preprocess -train_src src-train.txt -train_tgt tgt-train.txt -valid_src src-val.txt -valid_tgt tgt-val.txt "
        "-save_data data/demo -src_vocab_size 50000 -share_vocab -src_lang en -tgt_lang de",
        "onmt_build_vocab -config en_de.yaml -n_sample 10000 --source-lang en --target-lang de --train c --output d",
        "onmt_train -data data/demo -save_model demo-model -layers 6 -rnn_size 512 -word_vec_size 512 -transformer_ff "
        "2048 -heads 8 -encoder_type transformer -decoder_type transformer -position_encoding -train_steps 200000 "
        "-max_generator_batches 2",
        "train -data d -save_model m -dropout 0.1 -batch_size 4096 -batch_type tokens -normalization tokens -accum_count "
        "2 -optim adam -adam_beta2 0.998 -decay_method noam -warmup_steps 8000 -learning_rate 2 -max_grad_norm 0 "
        "-param_init 0 -param_init_glorot -label_smoothing 0.1 -valid_steps 10000 -save_checkpoint_steps 10000 "
        "-world_size 4 -gpu_ranks 0 1 2 3",
        "train --config wmt17.yaml --data d --output o --share_embeddings --report_every 100 --early_stopping 4 "
        "--keep_checkpoint 10",
        "onmt_translate -model m.pt -src src.txt -output pred.txt -gpu 0 -beam_size 5 -n_best 1 -replace_unk -verbose "
        "-batch_size 64",
        "translate -model a.pt b.pt -src s.txt -tgt t.txt -output o.txt -length_penalty wu -alpha 0.6 -block_ngram_repeat"
        " 3 -max_length 200 -with_score",
        "onmt_average_models -models a.pt b.pt -output avg.pt",
    ],
    "Sockeye": [
        "sockeye-prepare-data -s corpus.en -t corpus.de -o data --shared-vocab --num-words 32000:32000 --word-min-count "
        "2:2 --max-seq-len 95:95 --num-samples-per-shard 10000000 --seed 1 --source-lang en --target-lang de",
        "sockeye-train -d data -vs dev.en -vt dev.de -o model --encoder transformer --decoder transformer --num-layers "
        "6:6 --transformer-model-size 512 --transformer-attention-heads 8:8 --transformer-feed-forward-num-hidden "
        "2048:2048",
        "train --prepared-data data -o m --batch-type max-word --batch-size 5000 --update-interval 4 --optimizer adam "
        "--initial-learning-rate 0.0002 --learning-rate-scheduler-type inv-sqrt-decay --learning-rate-warmup 4000 "
        "--checkpoint-interval 500 --max-num-checkpoint-not-improved 20 --optimized-metric bleu --decode-and-evaluate 500",
        "train --data d --output o --weight-tying-type src_trg_softmax --embed-dropout 0.1:0.1 "
        "--transformer-dropout-attention 0.1 --transformer-dropout-act 0.1 --transformer-dropout-prepost 0.1 "
        "--label-smoothing 0.1 --gradient-clipping-threshold 1.0 --keep-last-params 60 --max-num-epochs 30 --amp --seed "
        "13 --no-bucketing --overwrite-output",
        "sockeye-translate -m model -i in.txt -o out.txt --beam-size 5 --nbest-size 5 --length-penalty-alpha 0.6 "
        "--length-penalty-beta 5 --batch-size 64 --chunk-size 1000 --use-cpu --output-type json",
        "translate --models a b --input in --output out --checkpoints best --max-output-length 100 --sample 10 --seed 3",
        "sockeye-average -n 8 --output best.params --strategy best model",
        "sockeye-evaluate --hypotheses hyp.de --references ref.de --metrics bleu chrf",
    ],
    "Hugging Face and JoeyNMT": [
        "train --model_name_or_path Helsinki-NLP/opus-mt-en-de --do_train --do_eval --source_lang en --target_lang de "
        "--dataset_name wmt16 --dataset_config_name de-en --output_dir out --per_device_train_batch_size 4 "
        "--predict_with_generate --overwrite_output_dir",
        "fine-tune --model_name_or_path base --train_file t.json --validation_file v.json --output_dir out "
        "--num_train_epochs 3.0 --gradient_accumulation_steps 8 --fp16 --max_source_length 128",
        "train --data d --output_dir o --learning_rate 5e-5 --lr_scheduler_type linear --warmup_steps 500 --weight_decay "
        "0.01 --max_grad_norm 1.0 --adam_beta1 0.9 --adam_beta2 0.98 --adam_epsilon 1e-9 --label_smoothing_factor 0.1 "
        "--bf16",
        "train --data d --output_dir o --evaluation_strategy steps --eval_steps 500 --save_steps 500 --logging_steps 100 "
        "--max_steps 10000 --save_total_limit 3 --load_best_model_at_end --metric_for_best_model bleu "
        "--gradient_checkpointing --report_to wandb --seed 42",
        "translate --model_name_or_path m --max_new_tokens 200 --num_return_sequences 3 --do_sample --top_k 10 --input "
        "in.txt",
        "train configs/transformer_small.yaml --skip-test --ckpt best.ckpt",
        "translate configs/iwslt14.yaml --ckpt best.ckpt --output_path out --save-attention",
        "average_checkpoints.py --inputs a.ckpt b.ckpt --output avg.ckpt",
    ],
}


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """`call(words)` runs a command in this process, which finds no files, and returns its exit status and its stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        return main.run(list(words)), capsys.readouterr().err

    return run


@pytest.mark.parametrize(("toolkit", "line"), [(toolkit, line) for toolkit, lines in LINES.items() for line in lines])
def test_a_command_line_of_another_toolkit_works_after_one_correction(toolkit, line, call):
    status, told = call(*shlex.split(line), "--dump-config")
    if status == 0:
        return
    *errors, suggested = told.splitlines()
    assert errors and all(error.startswith("nmt: error: ") and error.endswith((")", "?")) for error in errors), told
    assert suggested.startswith("try: nmt "), told
    status, told = call(*shlex.split(suggested)[2:])
    assert status == 0 or "no such folder" in told, (suggested, told)


def test_all_errors_have_one_line_each_and_unknowable_values_get_no_suggested_command(call):
    status, told = call("train", "--fp16", "--dropuot", "0.1", "--heads", "many", "--seed=x", "--data", "d")
    assert status == 2
    named = ["'--fp16'", "'--dropuot'", "--heads 'many'", "--seed 'x'", "--output"]
    assert len(told.splitlines()) == len(named) and "try: " not in told
    assert all(name in line for name, line in zip(named, told.splitlines(), strict=True))


def test_the_errors_of_a_settings_file_are_reported_together(call):
    Path("s.toml").write_text("dropuot = 0.1\nheads = 'many'\nseed = 1.5\n")
    status, told = call("train", "data", "--output=o", "--config=s.toml")
    assert status == 2 and len(told.splitlines()) == 3
    assert all(name in told for name in ("'dropuot'", "--heads 'many'", "--seed '1.5'"))


def test_a_corrected_line_is_quoted_for_a_shell(call):
    _, told = call("train", "my data", "--save-dir", "it's", "--fp16")
    line = told.splitlines()[-1].removeprefix("try: ")
    assert shlex.split(line) == ["nmt", "train", "my data", "--save-dir", "it's", "--precision", "fp16"]
