#!/usr/bin/env bash
# The study's five steps in order: volume, curriculum or mixed, reward, curriculum or mixed again, other models. Each
# step chooses the setting with the highest mean accepted@1 over the levels' dev sets, the first of equals; at the end
# one table of all runs. Finished runs are reused.
#   [VOLUMES="45000 60000 90000"] bash scripts/npg_muse/train_ablation.sh MODEL [OTHER MODEL ...]
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.train_ablation "$@"
