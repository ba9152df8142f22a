#!/usr/bin/env bash
# Do lm-eval (cross_domain.sh) and recipe.evaluate agree? Both answer the micro suite's 51 test problems of the skill
# trace with the same model, greedily. Needs the micro suite (scripts/quickstart.sh) and scripts/setup.sh lm_eval.
#   bash scripts/npg_muse/lm_eval_agreement.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.lm_eval_agreement "$@"
