#!/usr/bin/env bash
# The micro suite and its starting model, in data/micro: problems, tokenizer and random weights, supervised start.
# What an earlier run made from the same sources (the model: from the same demonstrations) is used again.
#   bash scripts/micro_start.sh [FOLDER [options of data_prep.micro ...]]
#   bash scripts/micro_start.sh data/parts --skills parts
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python
data=${1:-data/micro}
[ $# -gt 0 ] && shift
mkdir -p $data
exec 9>"$data/.lock"
flock --nonblock 9 || { echo "another process is making $data; waiting for it"; flock 9; }

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
    "$@" 9>&-
    echo "$key" >"$data/.${number}.key"
}

supervised_start() {
    rm -rf $data/sft $data/model
    $python -m recipe.sft sft_experiment=micro model.path=$data/initial_model trainer.default_local_dir=$data/sft \
        data.train_files=$data/sft_train.parquet data.val_files=$data/sft_val.parquet
    cp -r "$(ls -d $data/sft/global_step_*/huggingface | tail -n 1)" $data/model
    rm -rf $data/sft/global_step_*
}

problems="data_prep/micro/suite.py data_prep/micro/problems.py data_prep/micro/programs.py data_prep/micro/queries.py"
problems="$problems data_prep/sources/agents.py data_prep/micro/problems.py data_prep/hidden_databases.py data_prep/splits.py"
problems="$problems data_prep/schema.py"
initial="data_prep/micro/model.py"
start="recipe/sft.py configs/sft.yaml configs/sft_experiment/micro.yaml configs/sft_platform/cpu.yaml"
make_once 1 "micro data: four skills, train, validation and test" $data/train.parquet "$problems" \
    $python -m data_prep.micro --out $data "$@"
make_once 2 "micro model: tokenizer and random weights" $data/initial_model "$initial" \
    $python -m data_prep.micro.model --out $data/initial_model
make_once 3 "supervised start on demonstrations of which a part is wrong (about 5 minutes)" $data/model \
    "$data/sft_train.parquet $data/sft_val.parquet $initial $start" supervised_start
