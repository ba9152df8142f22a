#!/usr/bin/env bash
# Skill-safe updates, from seconds to days:
#   bash scripts/run_paper_b.sh toy [options]           numpy problems with known gradients, all methods
#   bash scripts/run_paper_b.sh micro [key=value ...]   micro suite on a CPU: the baseline matrix, and a sweep of epsilon
#   bash scripts/run_paper_b.sh real [key=value ...]    the same on GPUs (PLATFORM=gpu_1x8 unless it is named); needs
#                                                       TRAIN_FILES, VAL_FILES (parquet) and SKILLS (in their order: [a,b,c])
# ARMS="grpo qp_solutions ..." picks files of configs/arm; EPSILONS="0.01 0.1 ..." what skills protected by qp_solutions may
# lose, as a cosine; none of either: "". SEEDS="0 1". REFRESH_STEPS=500: how many steps the arm refresh has in real. Hydra
# multiruns in one folder, with one summary at the end. Can be stopped and started again: finished runs are not done again.
[ "${1:-}" != real ] || PLATFORM=${PLATFORM:-gpu_1x8}
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
scale=${1:-}
[ $# -gt 0 ] && shift

case $scale in
    toy)
        run bash scripts/setup.sh "$serving"
        run "$PYTHON" -m examples.toys projection "$@"
        exit
        ;;
    micro)
        micro_start
        micro_study paper_b_micro
        words=(experiment=paper_b)
        ;;
    real)
        : "${TRAIN_FILES:?parquet of training rows}" "${VAL_FILES:?of validation rows}" "${SKILLS:?their order, as [a,b,c]}"
        # shellcheck disable=SC2207
        study=(outputs/paper_b_real --data $(files_in "train_files=$TRAIN_FILES") $(files_in "val_files=$VAL_FILES"))
        words=(experiment=paper_b_real "data.train_files=$TRAIN_FILES" "data.val_files=$VAL_FILES" "skills.names=$SKILLS")
        ;;
    *)
        sed -n '2,9s/^# \{0,1\}//p' "scripts/run_paper_b.sh" >&2
        exit 2
        ;;
esac

study+=(--set "train=$* ${TRAIN:-}")
arms=${ARMS-grpo ppo reinforce kl entropy replay refresh ewc l2 sequential_margin qp_rollouts qp_solutions qp_both}
epsilons=${EPSILONS-0.01 0.03 0.1 0.3} seeds=${SEEDS:-0} curve=()
[ -z "$epsilons" ] || curve=(--pareto qp_solutions)
words+=("run.experiment=paper_b_$scale" "data.seed=${seeds// /,}")
if [ "$scale" = real ] && [[ " $arms " = *" refresh "* ]]; then
    # The arm's two steps are a quarter of the micro suite's stages, and next to nothing of a real model's.
    arms=" $arms " arms=$(xargs <<<"${arms/ refresh / }")
    arms=refresh epsilons="" arms_and_epsilons 's${data.seed}' "protocol.refresh_steps=${REFRESH_STEPS:-500}" "$@"
fi
arms_and_epsilons 's${data.seed}' "$@"
run "$PYTHON" -m recipe.report skills "outputs/paper_b_$scale" "${curve[@]}"
exit $failed
