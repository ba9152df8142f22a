#!/usr/bin/env bash
# Compare lm-eval (cross_domain.sh) with recipe.evaluate: both run the same model greedily on the micro suite's 51 test
# problems of the skill trace. Needs the micro suite (scripts/quickstart.sh) and scripts/setup.sh lm_eval.
#   bash scripts/npg_muse/lm_eval_agreement.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.lm_eval_agreement "$@"
