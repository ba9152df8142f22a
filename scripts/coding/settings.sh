# shellcheck shell=bash
# Settings of all phases of the coding pipeline, in addition to scripts/common.sh. Variables that a user sets:
#   DATA         train.parquet and dev.parquet of data_prep.govern (default: data/coding)
#   OUT          folder of the study (default: outputs/coding)
#   EXPERIMENT   file of configs/experiment for phases 3 and 4 and for the answer length (default: code_grpo)
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
DATA=${DATA:-data/coding} OUT=${OUT:-outputs/coding} EXPERIMENT=${EXPERIMENT:-code_grpo}
answers_of "$EXPERIMENT"
# phase0/model links to the study's starting model.
study=("$OUT" --model "start=$OUT/phase0/model" --data "train=$DATA/train.parquet" "dev=$DATA/dev.parquet")
