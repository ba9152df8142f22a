#!/usr/bin/env bash
# From a fresh checkout to a trained model on one machine without a GPU: set-up, micro data, supervised start,
# GRPO, report. Arguments go to recipe.train:
#   bash scripts/quickstart.sh [key=value ...]
# What was made before is used again (data/micro); the training is a new run each time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh cpu
python=.venv/bin/python
data=data/micro
mkdir -p $data
begin=$SECONDS

make_once() { # number, what, result, sources, command...
    local number=$1 what=$2 result=$3 sources=$4 key
    shift 4
    # shellcheck disable=SC2086
    key=$(cat $sources <(echo "$@") | sha256sum | cut -c1-64)
    if [ -e "$result" ] && [ "$(cat "$data/.${number}.key" 2>/dev/null)" = "$key" ]; then
        echo "[$number/4] $what: using $result of an earlier run"
        return
    fi
    echo "[$number/4] $what"
    rm -rf "$result"
    "$@"
    echo "$key" >"$data/.${number}.key"
}

supervised_start() {
    rm -rf $data/sft $data/model
    $python -m recipe.sft sft_experiment=micro
    cp -r "$(ls -d $data/sft/global_step_*/huggingface | tail -n 1)" $data/model
    rm -rf $data/sft/global_step_*
}

problems="data_prep/micro.py data_prep/micro_problems.py data_prep/schema.py"
initial="data_prep/micro_model.py"
start="recipe/sft.py configs/sft.yaml configs/sft_experiment/micro.yaml configs/sft_platform/cpu.yaml"
make_once 1 "micro data: four skills, train, validation and test" $data/train.parquet "$problems" \
    $python -m data_prep.micro --out $data
make_once 2 "micro model: tokenizer and random weights" $data/initial_model "$initial" \
    $python -m data_prep.micro_model --out $data/initial_model
make_once 3 "supervised start on demonstrations of which a part is wrong (about 3 minutes)" $data/model \
    "$problems $initial $start" supervised_start
echo "[4/4] GRPO with verl, vLLM and LoRA (about 5 minutes)"
$python -m recipe.train experiment=quickstart "$@"
echo "all of it took $(((SECONDS - begin) / 60)) min $(((SECONDS - begin) % 60)) s after the set-up"
