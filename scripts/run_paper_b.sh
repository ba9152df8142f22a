#!/usr/bin/env bash
# Skill-safe updates, from seconds to days:
#   bash scripts/run_paper_b.sh toy [options]           numpy problems with known gradients, all methods
#   bash scripts/run_paper_b.sh micro [key=value ...]   micro suite on a CPU: the baseline matrix, and a sweep of epsilon
#   bash scripts/run_paper_b.sh real [key=value ...]    the same on GPUs (PLATFORM=gpu_1x8 by default); needs
#                                                       TRAIN_FILES, VAL_FILES (parquet) and SKILLS (in their order: [a,b,c])
# ARMS="grpo qp_solutions ..." selects files of configs/arm; EPSILONS="0.01 0.1 ..." what skills protected by qp_solutions
# may lose, as a cosine; "" for none of either. SEEDS="0 1". REFRESH_STEPS=500: steps of the arm refresh in real. Hydra
# multiruns in one folder, with one summary at the end. Can be stopped and restarted: finished runs are not repeated.
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
        overrides=(experiment=paper_b)
        ;;
    real)
        : "${TRAIN_FILES:?parquet of training rows}" "${VAL_FILES:?of validation rows}" "${SKILLS:?their order, as [a,b,c]}"
        # shellcheck disable=SC2207
        study=(outputs/paper_b_real --data $(files_in "train_files=$TRAIN_FILES") $(files_in "val_files=$VAL_FILES"))
        overrides=(experiment=paper_b_real "data.train_files=$TRAIN_FILES" "data.val_files=$VAL_FILES" "skills.names=$SKILLS")
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
overrides+=("run.experiment=paper_b_$scale" "data.seed=${seeds// /,}")
if [ "$scale" = real ] && [[ " $arms " = *" refresh "* ]]; then
    # The arm's two steps are a quarter of a stage of the micro suite, but almost nothing of a real model's stage.
    arms=" $arms " arms=$(xargs <<<"${arms/ refresh / }")
    arms=refresh epsilons="" arms_and_epsilons 's${data.seed}' "protocol.refresh_steps=${REFRESH_STEPS:-500}" "$@"
fi
arms_and_epsilons 's${data.seed}' "$@"
run "$PYTHON" -m recipe.report skills "outputs/paper_b_$scale" "${curve[@]}"
exit $failed
