#!/usr/bin/env bash
# The study's smoke setting (750 rows, 5 steps) on the micro tokenizer and the micro model with random weights, on one
# machine without a GPU: both strategies, compared (docs/how-to/studies.md). It shows that the parts fit together, not
# that anything is learnt.
#   bash scripts/npg_muse/smoke.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.smoke "$@"
