# The arms of paper A, for the scripts that source this: the words that make each.
source scripts/arms.sh

replays="credit=counterfactual credit.budget=8"
declare -A ARM_WORDS=(
    [grpo]="credit=off"
    [delete]="$replays credit.method=delete"
    [truncate]="$replays credit.method=truncate"
    [shapley]="$replays credit.method=shapley"
    [shuffled]="$replays credit.method=delete credit.ablation=shuffled"
    [inverted]="$replays credit.method=delete credit.ablation=inverted"
)
