#!/usr/bin/env bash
# Step 3 of the study: choose the reward. One run per reward, all else equal; prints the best reward.
#   bash scripts/npg_muse/ablate_rewards.sh MODEL mixed|curriculum VOLUME
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
[ $# -eq 3 ] || { say "expected three arguments: MODEL mixed|curriculum VOLUME"; exit 2; }
check strategy "$2" mixed curriculum
settings=()
for reward in $REWARDS; do settings+=("$2 $1 $reward $3"); done
train_all "${settings[@]}"
best "${settings[@]}" | cut -d ' ' -f 3
