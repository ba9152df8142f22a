#!/usr/bin/env bash
# Countdown and GSM8K from data to comparison at smoke size, with the micro model on one machine without a GPU: 640 generated
# problems, 4 updates. It shows that the parts fit together, not that anything is learnt: the micro model knows neither task.
#   bash scripts/smoke.sh [countdown] [gsm8k]
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
model=data/micro/model
need $model "bash scripts/micro_start.sh"
export LENGTH=48 SOURCE_OPTIONS="--limit 640" PROBE="--limit 16 --samples 4" EVALUATE="--limit 32" NAME=${NAME:-smoke}
# A byte is a token, and the micro model's context has 512 of them.
export TRAIN="data.max_prompt_length=448 data.train_batch_size=16 data.val_max_samples=32
    actor_rollout_ref.actor.ppo_mini_batch_size=16 actor_rollout_ref.rollout.n=4 actor_rollout_ref.model.lora_rank=8
    trainer.total_training_steps=4 trainer.test_freq=4 trainer.save_freq=4"
declare -A source=([countdown]=countdown [gsm8k]=arithmetic)
[ $# -gt 0 ] || set -- countdown gsm8k
for name in "$@"; do
    FOLDER=${name}_$NAME SOURCE=${source[$name]:?countdown or gsm8k} bash "scripts/$name.sh" $model
done
