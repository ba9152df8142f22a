# The arms of paper B, for the scripts that source this: the words that make each.
source scripts/arms.sh

declare -A ARM_WORDS=(
    [grpo]=""
    [kl]="baseline=kl"
    [entropy]="baseline=entropy"
    [reinforce]="baseline=reinforce"
    [ppo]="baseline=ppo"
    [replay]="baseline=replay"
    [refresh]="baseline=refresh"
    [ewc]="baseline=ewc"
    [l2]="baseline=l2"
    [sequential_margin]="projection=sequential_margin"
    [pcgrad]="projection=pcgrad"
    [qp_rollouts]="projection=qp"
    [qp_solutions]="projection=qp projection.constraint_source=solutions"
    [qp_both]="projection=qp projection.constraint_source=both"
    [qp_gradient]="projection=qp projection.constraint_source=solutions projection.space=gradient"
)

# staged_seed_words SEED: the same for protocols with stages.
staged_seed_words() {
    echo "$(seed_words "$1") protocol.seed=$1"
}
