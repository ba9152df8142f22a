#!/usr/bin/env bash
# The study's smoke setting (750 rows, 5 steps) on the micro tokenizer and the micro model with random weights, on one machine
# without a GPU: both strategies, compared (docs/how-to/studies.md). It shows that the parts fit together, not that
# anything is learnt.
#   bash scripts/npg_muse/smoke.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
model=data/npg_muse/model
[ -e $model ] || run "$PYTHON" -m data_prep.micro.model --out $model --max-length 8192
# A byte is a token: the largest prompts have some thousand. Short answers and few prompts per step for a smoke test.
export TRAIN="data.max_prompt_length=5000 data.train_batch_size=16
    actor_rollout_ref.actor.ppo_mini_batch_size=16 actor_rollout_ref.rollout.n=2 data.val_max_samples=10
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.max_model_len=5120"
export LENGTH=32 EVALUATE="--limit 4"
bash scripts/npg_muse/compare_curriculum.sh $model binary 750
