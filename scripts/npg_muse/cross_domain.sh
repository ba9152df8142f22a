#!/usr/bin/env bash
# Sets of other domains, by lm-eval's own command line in an environment of its own (bash scripts/setup.sh lm_eval). lm-eval
# downloads its data. One command a set; a set that has its results is not evaluated again.
#   [SETS="gsm8k ..."] [LM_EVAL="--limit 100"] bash scripts/npg_muse/cross_domain.sh MODEL OUT
# MODEL: a Hugging Face folder, or a hub's name. LENGTH: tokens of an answer (default: the study's, whatever lm-eval's task says).
# LM_EVAL: more options of `lm_eval run`; VLLM_ARGS: of its vLLM, such as "tensor_parallel_size=8,max_model_len=16384".
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.cross_domain "$@"
