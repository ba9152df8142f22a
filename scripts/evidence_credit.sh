#!/usr/bin/env bash
# Credit where the reward is sparse: the runs of docs/evidence/credit_plan.md and their table.
#   [TASKS="parts16 parts4 chain8"] [SEEDS="20 21 ..."] [ARMS="grpo credit ..."] [RATES="1e-3 2e-3 4e-3"] \
#   [SIZES="2x8 1x4"] [REACH=0.5] [START=FOLDER] [KEPT=FOLDER] \
#   bash scripts/evidence_credit.sh rates|arms|longer|rivals|agents [key=value ...]
# `rates` trains each arm at several learning rates, and with updates of each of SIZES (prompts x samples), on seeds
# that `arms` does not use; the best goes into configs/experiment/credit_TASK.yaml, or an arm's into CreditTask.own,
# before `arms`. `longer` gives GRPO as many and twice the samples on parts16, `rivals` adds arms of other papers,
# `agents` compares credit per turn with GiGPO and GRPO. All runs of a task start from the same weights: a supervised
# start, or with START those in FOLDER/TASK/model. Can be stopped and restarted: finished runs are not repeated. KEPT,
# a folder with a file of recipe.keep per task, continues a study on another machine.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study evidence_credit "$@"
