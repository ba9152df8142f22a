#!/usr/bin/env bash
# Evaluate a model of the study on problems that no run trains on:
#   in_task      its six tasks      cross_task   graph tasks in polynomial time      cross_domain   cross_domain.sh
#   [WHAT="in_task cross_task cross_domain"] [PROBLEMS=600] bash scripts/npg_muse/evaluate.sh MODEL OUT
# MODEL: a Hugging Face folder or a hub name. Answers are as long as in training (LENGTH).
# PROBLEMS: size of each of the first two groups, spread over tasks and levels. To compare two models:
# recipe.report compare OUT_A/in_task OUT_B/in_task
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.evaluate "$@"
