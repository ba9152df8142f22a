#!/usr/bin/env bash
# The coding pipeline, all phases, with the micro model and two of its skills, without a GPU (docs/how-to/studies.md).
#   bash scripts/coding/micro.sh
# Without .venv-dpo (bash scripts/setup.sh dpo) phase 2 is skipped.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
run bash scripts/micro_start.sh
export DATA=data/micro_coding OUT=${OUT:-outputs/micro_coding} EXPERIMENT=quickstart LENGTH=64 AGENTS=micro SAMPLES=4
if [ ! -e $DATA/dev.parquet ]; then
    run "$PYTHON" -m data_prep.micro --out $DATA --skills write repair --limit 128
    run cp $DATA/val.parquet $DATA/dev.parquet
fi
if [ ! -e $DATA/model ]; then # the starting model has never seen a second turn: train it on some
    read='from recipe.settings import read_agents as read; print(read("micro").feedback["code_agent"])'
    feedback=$([ -n "${DRY_RUN:-}" ] || "$PYTHON" -c "$read")
    run "$PYTHON" -m data_prep.micro.episodes --out $DATA/episodes_train.parquet --feedback "$feedback"
    run "$PYTHON" -m data_prep.micro.episodes --out $DATA/episodes_val.parquet --feedback "$feedback" --seed 1 --limit 16
    run "$PYTHON" -m recipe.sft sft_experiment=micro model.path=data/micro/model data.train_files=$DATA/episodes_train.parquet \
        data.val_files=$DATA/episodes_val.parquet optim.lr=1e-3 trainer.total_training_steps=128 trainer.default_local_dir=$DATA/sft
    run cp -r $DATA/sft/global_step_128/huggingface $DATA/model
fi
[ -e .venv-dpo/.stamp ] || export WITHOUT=2
# Sampled answers: the micro model's greedy answers are nearly all correct before any training.
export EVALUATE="--protocol eval@k --samples 4 --vllm=--max-model-len=512"
export SFT="data.max_length=256 optim.lr=1e-4 data.train_batch_size=32 data.micro_batch_size_per_gpu=16"
export DPO="--lr 5e-4 --epochs 2 --margin 0.3 --batch-size 16 --micro-batch-size 8 --max-length 256"
export TRAIN="trainer.total_training_steps=8 trainer.save_freq=8 trainer.test_freq=8"
# Three turns of 64 tokens and two answers of the environment between them.
export REPAIR="data.max_response_length=320 actor_rollout_ref.rollout.max_model_len=480"
bash scripts/coding/all.sh $DATA/model
