# shellcheck shell=bash
# Functions shared by the launchers of the studies, which source this file. Variables that a user sets:
#   PLATFORM   cpu (default), gpu_1x8 or gpu_ray
#   DRY_RUN    1: print the commands without running them
#   PYTHON     the interpreter (default .venv/bin/python)
#   LENGTH     maximum tokens of an answer in training, validation, probe and every evaluation (default:
#              data.max_response_length of the study's file in configs/experiment)
#   EVALUATE   more options of recipe.evaluate for every evaluation, such as "--limit 100"
#   EXPORT     more options of recipe.export, such as "--prompts 0": no comparison of vLLM with transformers
#   TRAIN      more overrides of recipe.train for every run, such as "trainer.total_training_steps=5"
#   PROBE      more options of recipe.probe, such as "--limit 64 --samples 8"
#   SOURCE_OPTIONS   more options of the data module, such as "--limit 640"; FOLDER names another folder for the data
# A model is a Hugging Face folder or a hub name (owner/model). The inputs of a folder of results (weights, data, settings)
# are recorded in its study.json (recipe.study); a command with different inputs is refused.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PLATFORM=${PLATFORM:-cpu}
PYTHON=${PYTHON:-.venv/bin/python}
serving=$([ "$PLATFORM" = cpu ] && echo cpu || echo gpu)
platform=() # override of the platform; cpu is the configuration's default
[ "$PLATFORM" = cpu ] || platform=("platform=$PLATFORM")
failed=0 # exit status of the last multirun in which a run failed
study=() # a folder and the inputs common to all steps of the study, as options of recipe.study

say() { printf '%s\n' "$*" >&2; }

stop() { # reason: exit with status 2
    say "stopped: $*"
    exit 2
}

run() { # command...: print it, and run it unless this is a dry run
    printf '+ %s\n' "$(printf '%q ' "$@")" >&2
    [ -n "${DRY_RUN:-}" ] || "$@" >&2
}

serve() { # command that starts vLLM: run it here, or where the Ray cluster has a free GPU
    if [ "$PLATFORM" = gpu_ray ]; then run "$PYTHON" -m recipe.cluster run "$@"; else run "$@"; fi
}

need() { # path, the command that makes it: stop if the path is missing
    [ -n "${DRY_RUN:-}" ] || [ -e "$1" ] || stop "no $1; first $2"
}

make_rows() { # folder, module of data_prep, options...: make the data once; refuse a folder made with other options
    run "$PYTHON" -m recipe.study "$1" --set "made=${2#sources.} ${*:3}"
    [ -e "$1/test.parquet" ] || run "$PYTHON" -m "data_prep.$2" --out "$1" "${@:3}"
}

local_model() { # model: print its folder, for a hub name that of its snapshot
    if [ -n "${DRY_RUN:-}" ]; then echo "$1"; else "$PYTHON" -m recipe.model "$1"; fi
}

answers_of() { # experiment: set LENGTH unless the user did
    LENGTH=${LENGTH:-$(sed -n 's/^  max_response_length: *\([0-9]*\).*/\1/p' "configs/experiment/$1.yaml")}
    [ -n "$LENGTH" ] || stop "configs/experiment/$1.yaml has no data.max_response_length: set LENGTH=TOKENS"
    case " ${TRAIN:-} ${EVALUATE:-} ${PROBE:-}" in
        *max_response_length* | *--max-tokens*) stop "the answer length is stated once, for training and evaluations: LENGTH=TOKENS" ;;
    esac
}

claim() { # folder, options of recipe.study: stop if the folder or the study was made with different inputs
    [ ${#study[@]} -eq 0 ] || run "$PYTHON" -m recipe.study "${study[@]}"
    run "$PYTHON" -m recipe.study "$@"
}

files_in() { # data.train_files=[FILE,...]: print NAME=FILE for each, as recipe.study reads them
    tr -d '[]' <<<"${1#*=}" | tr , '\n' | awk -v key="${1%%_*}" '{ print key NR "=" $0 }'
}

evaluate() { # model, out, options...: judge as the experiment EXPERIMENT does; a finished evaluation is reused
    local argument option="" data=() options=()
    for argument in "${@:3}"; do
        [[ $argument != --* ]] || option=$argument
        if [ "$option" != --data ]; then
            options+=("$argument")
        elif [ "$argument" != --data ]; then
            data+=("$argument")
        fi
    done
    claim "$2" --model "model=$1" --data "${data[@]}" "experiment=configs/experiment/$EXPERIMENT.yaml" \
        --set "evaluate=--experiment $EXPERIMENT --max-tokens $LENGTH ${options[*]} ${EVALUATE:-}"
    [ ! -e "$2/metrics.json" ] || { say "reusing $2 from an earlier run"; return; }
    # shellcheck disable=SC2086
    serve "$PYTHON" -m recipe.evaluate --model "$1" --platform "$serving" --experiment "$EXPERIMENT" --out "$2" \
        --data "${data[@]}" --max-tokens "$LENGTH" "${options[@]}" ${EVALUATE:-}
}

grpo() { # experiment, model, run name, overrides...: train, and export the model to outputs/EXPERIMENT/NAME/model
    local folder=outputs/$1/$3 one_machine=() override data=() settings=()
    for override in "${@:4}"; do
        case $override in
            data.train_files=* | data.val_files=*) data+=($(files_in "$override")) ;;
            *) settings+=("$override") ;;
        esac
    done
    claim "$folder" --model "start=$2" --data "experiment=configs/experiment/$1.yaml" "${data[@]}" \
        --set "train=data.max_response_length=$LENGTH ${settings[*]} ${TRAIN:-}"
    # Without a GPU there is no sequence parallelism, and micro-batches are sized by samples instead of tokens.
    [ "$PLATFORM" != cpu ] || [ "$1" = quickstart ] || one_machine=(
        actor_rollout_ref.actor.ulysses_sequence_parallel_size=1
        actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16
        actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16
        actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16)
    [ ! -e "$folder/model" ] || { say "reusing $folder/model from an earlier run"; return; }
    # shellcheck disable=SC2086
    run "$PYTHON" -m recipe.train "experiment=$1" "platform=$PLATFORM" "actor_rollout_ref.model.path=$2" \
        "run.name=$3" "data.max_response_length=$LENGTH" "${one_machine[@]}" "${@:4}" ${TRAIN:-}
    # shellcheck disable=SC2086
    serve "$PYTHON" -m recipe.export "$folder" --out "$folder/model" --platform "$serving" ${EXPORT:-}
}

micro_start() { # [folder, options of data_prep.micro...]: set up the environment, the micro suite and its starting model
    run bash scripts/setup.sh "$serving"
    run bash scripts/micro_start.sh "$@"
}

micro_study() { # experiment: set the study; all its runs start from the micro suite's model and use its rows
    study=("outputs/$1" --model start=data/micro/model --data train=data/micro/train.parquet val=data/micro/val.parquet)
}

multirun() { # overrides...: one run per combination of values; a failed run stops neither the others nor the script
    [ ${#study[@]} -eq 0 ] || run "$PYTHON" -m recipe.study "${study[@]}"
    # shellcheck disable=SC2086
    run "$PYTHON" -m recipe.train --multirun "${platform[@]}" "$@" ${TRAIN:-} || failed=$?
}

arms_and_epsilons() { # end of the run names, the user's overrides...: run the study "${overrides[@]}" with each of $arms,
    # and with qp_solutions and each of $epsilons as a cosine; epsilon 0 is one of the arms
    [ -z "$arms" ] || multirun "${overrides[@]}" "arm=${arms// /,}" "run.name=\${hydra:runtime.choices.arm}.$1" "${@:2}"
    [ -z "$epsilons" ] || multirun "${overrides[@]}" arm=qp_solutions projection.epsilon_kind=cosine \
        "projection.epsilon=${epsilons// /,}" "run.name=qp_solutions_epsilon\${projection.epsilon}.$1" "${@:2}"
}

take_kept() { # folder of runs: restore the finished runs that another machine saved in the file $KEPT
    [ ! -e "${KEPT:-}" ] || run "$PYTHON" -m recipe.keep "$KEPT" "$1"
}

keep_runs() { # folder of runs: add the records of finished runs, as far as tables need them, to the file $KEPT
    [ -z "${KEPT:-}" ] || run "$PYTHON" -m recipe.keep "$1" "$KEPT"
}

study_of() { # model: data (by the module SOURCE), probe, GRPO and evaluation of the task TASK
    local data=data/${FOLDER:-$TASK} out=outputs/${FOLDER:-$TASK} model split
    local adaptation=full preset=() EXPERIMENT=$TASK
    model=$(local_model "${1:?which model? a Hugging Face folder or a hub name (owner/model)}")
    answers_of "$TASK"
    [ -z "$PRESET" ] || preset=("model_preset=$PRESET")
    [ "$PLATFORM" != cpu ] || adaptation=lora preset=() # one machine: adapters and no parallelism
    # shellcheck disable=SC2086
    make_rows "$data" "sources.$SOURCE" --experiment "$TASK" ${SOURCE_OPTIONS:-}
    for split in train dev test; do need "$data/$split.parquet" "remove $data: its data lack the split $split"; done
    study=("$out" --model "start=$model" --data)
    for split in train dev test; do study+=("$split=$data/$split.parquet"); done
    claim "$out/probe" --set "probe=--experiment $TASK --max-tokens $LENGTH ${PROBE:-}"
    # shellcheck disable=SC2086
    [ -e "$out/probe/probe.json" ] || serve "$PYTHON" -m recipe.probe --model "$model" --platform "$serving" \
        --experiment "$TASK" --data "$data/train.parquet" --limit 256 --samples 16 --out "$out/probe" --max-tokens "$LENGTH" ${PROBE:-}
    grpo "$TASK" "$model" "${NAME:-study}" "${preset[@]}" "adaptation=$adaptation" \
        "data.train_files=$data/train.parquet" "data.val_files=$data/dev.parquet"
    evaluate "$model" "$out/base" --data "${TASK}_test=$data/test.parquet"
    evaluate "outputs/$TASK/${NAME:-study}/model" "$out/trained" --data "${TASK}_test=$data/test.parquet"
    run "$PYTHON" -m recipe.report compare "$out/base" "$out/trained"
}
