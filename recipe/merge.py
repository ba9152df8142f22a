"""Merge models trained from one start: ``python -m recipe.merge BASE MODEL [MODEL ...] --out DIR [--weight W]``.

Task arithmetic (Ilharco et al. 2023, arXiv 2212.04089): base + W times the sum of what each training changed. With the
default W, 1 / number of models, it is their mean. Of exported single-skill runs with LoRA it merges the adapters'
products B A, not A and B apart, whose means would multiply to something else.
"""

import recipe.runtime.quiet  # noqa: F401  (before the stack is imported)

import argparse  # isort: skip
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from recipe.runtime.console import program

REFUSED = 2


class MergeError(ValueError):
    """The models cannot be merged; the message addresses the user."""


def merged(base: Mapping[str, Tensor], models: Iterable[Mapping[str, Tensor]], weight: float) -> dict[str, Tensor]:
    """Base plus `weight` times the sum of the models' differences from it, in float32, in the dtypes of the base.

    Tensors that no model changed keep their bits. Models are read one at a time.

    Raises:
        MergeError: a model has other tensors, or other shapes, than the base.
    """
    changes: dict[str, Tensor] = {}
    for number, model in enumerate(models, start=1):
        if other := sorted(model.keys() ^ base.keys()):
            raise MergeError(f"model {number} and the base differ in their tensors, such as {other[0]}")
        for name, tensor in base.items():
            if model[name].shape != tensor.shape:
                raise MergeError(
                    f"model {number} has {name} {tuple(model[name].shape)}, the base {tuple(tensor.shape)}"
                )
            if not model[name].equal(tensor):
                change = model[name].float() - tensor.float()
                changes[name] = changes[name] + change if name in changes else change
    return {
        name: (tensor.float() + weight * changes[name]).to(tensor.dtype) if name in changes else tensor
        for name, tensor in base.items()
    }


def merge(base: Path, models: Sequence[Path], out: Path, weight: float | None) -> None:
    """Write the merged model with the base's tokenizer to `out`.

    Raises:
        MergeError: a folder is missing, `out` exists, the weight is not finite, or the models do not fit.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    for folder in (base, *models):
        if not (folder / "config.json").is_file():
            raise MergeError(f"{folder} is not a model: it has no config.json; export one with python -m recipe.export")
    if out.exists():
        raise MergeError(f"{out} exists already; remove it, or choose another --out")
    chosen = 1 / len(models) if weight is None else weight
    if not math.isfinite(chosen):
        raise MergeError(f"--weight must be a finite number, got {chosen}")

    network = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    others = (AutoModelForCausalLM.from_pretrained(folder, dtype="auto").state_dict() for folder in models)
    network.load_state_dict(merged(network.state_dict(), others, chosen))
    network.save_pretrained(out)
    AutoTokenizer.from_pretrained(base).save_pretrained(out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = argparse.ArgumentParser(prog=program("merge"), description=__doc__)
    options.add_argument("base", type=Path, help="folder of the model that all of them were trained from")
    options.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="folder of a model, by recipe.export")
    options.add_argument("--out", type=Path, required=True, help="folder of the merged model")
    options.add_argument("--weight", type=float, help="of each change (default: 1 / number of models)")
    given = options.parse_args(arguments)
    try:
        merge(given.base, given.models, given.out, given.weight)
    except MergeError as error:
        print(f"recipe.merge: {error}", file=sys.stderr)
        return REFUSED
    print(f"model: {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
