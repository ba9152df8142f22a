#!/usr/bin/env bash
# Skill-safe updates, from seconds to days:
#   bash scripts/run_paper_b.sh toy [options]           numpy problems with known gradients, all methods
#   bash scripts/run_paper_b.sh micro [key=value ...]   micro suite on a CPU: the baseline matrix and a sweep of epsilon
#   bash scripts/run_paper_b.sh real [key=value ...]    the same on GPUs (PLATFORM=gpu_1x8 by default); needs
#                                                       TRAIN_FILES, VAL_FILES (parquet) and SKILLS
#                                                       (in their order: [a,b,c])
# ARMS="grpo qp_solutions ..." selects files of configs/arm; EPSILONS="0.01 0.1 ..." what skills protected by
# qp_solutions may lose, as a cosine; BASELINES="single mixed": GRPO on each skill alone for a stage's updates, and on
# all skills for those of all stages. "" for none of these. SEEDS="0 1". REFRESH_STEPS=500: steps of the arm refresh in
# real. Hydra multiruns in one folder, with one summary at the end.
# Can be stopped and restarted: finished runs are not repeated.
[ "${1:-}" != real ] || export PLATFORM=${PLATFORM:-gpu_1x8}
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study paper_b "$@"
