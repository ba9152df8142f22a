#!/usr/bin/env bash
# The study's five steps in their order: volume, curriculum or mixed, reward, curriculum or mixed again, other models. Each
# step takes the setting with the highest mean accepted@1 over the levels' dev sets, of equals the first; at the end one
# table over all runs. What was finished before is used again.
#   [VOLUMES="45000 60000 90000"] bash scripts/npg_muse/train_ablation.sh MODEL [OTHER MODEL ...]
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.train_ablation "$@"
