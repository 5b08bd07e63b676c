"""Models that are in memory already: taken as they are, measured, and given back as they were.

Measuring wants a model in evaluation, without gradients to its parameters, in an attention implementation that is
right for its family. A user's model may be in training: what is switched is put back, also after an error.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from posbias.core.errors import InvalidValueError, ModelError
from posbias.measurement.models.formats import tokenizer_of_folder
from posbias.measurement.models.loading import LoadedModel, check_vocabulary, load_model


@contextmanager
def ready(model: Any, tokenizer: Any = None) -> Iterator[LoadedModel]:
    """A model ready to be measured, whatever stands for it.

    `model`: a `LoadedModel`, which brings its tokenizer; a name or folder that `load_model` takes, with the folder
    of another tokenizer if wanted; or a model of transformers, with its tokenizer (or the folder of one), which is
    switched for the block only. Raises as `load_model`, and `InvalidValueError` for anything else.
    """
    if isinstance(model, LoadedModel):
        if tokenizer is not None:
            raise InvalidValueError("tokenizer: given with a LoadedModel, which brings its own; leave it out")
        yield model
    elif isinstance(model, str | Path):
        if tokenizer is not None and not isinstance(tokenizer, str | Path):
            raise InvalidValueError(
                f"tokenizer: a {type(tokenizer).__name__} given with a model by name, the folder of one needed"
            )
        yield load_model(model, tokenizer=tokenizer)
    else:
        _check(model, tokenizer)
        if isinstance(tokenizer, str | Path):
            tokenizer = tokenizer_of_folder(tokenizer)
        check_vocabulary(model, tokenizer)
        with unchanged(model):
            yield LoadedModel.of(model, tokenizer, name_of(model))


def name_of(model: Any) -> str:
    """What a model in memory is called: where its configuration was loaded from, else its class.

    Of a folder it is the last part.
    """
    name = str(getattr(model.config, "_name_or_path", "") or "")
    return (Path(name).name if Path(name).is_dir() else name) or type(model).__name__


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Put back what measuring switches: modes, gradients of parameters, attention implementations, hooks.

    (Asked for its attention, a model of transformers installs hooks of its own, and marks that it has.)
    """
    modules = [(module, _marks(module), {*vars(module)}, _hooks(module)) for module in model.modules()]
    wanted = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    attention = [(config, config._attn_implementation_internal) for config in _configs(model)]
    try:
        yield
    finally:
        for module, marks, names, hooks in modules:
            for name in {*vars(module)} - names:
                delattr(module, name)
            vars(module).update(marks)
            for name, kept in hooks.items():
                held = vars(module)[name]
                for number in {*held} - kept:
                    del held[number]
        for parameter, gradient in wanted:
            parameter.requires_grad_(gradient)
        for config, implementation in attention:
            config._attn_implementation_internal = implementation


def _marks(module: nn.Module) -> dict[str, bool]:
    """What a module has as yes or no, `training` among it."""
    return {name: held for name, held in vars(module).items() if isinstance(held, bool)}


def _hooks(module: nn.Module) -> dict[str, set[int]]:
    """The numbers of a module's hooks, by kind."""
    return {
        name: {*held} for name, held in vars(module).items() if "_hooks" in name and isinstance(held, dict)
    }


def _configs(model: nn.Module) -> list[Any]:
    """The configurations of a model and of the models in it, each once."""
    waiting = [module.config for module in model.modules() if hasattr(module, "config")]
    found: dict[int, Any] = {}
    while waiting:
        config = waiting.pop()
        if id(config) in found or not hasattr(config, "_attn_implementation_internal"):
            continue
        found[id(config)] = config
        waiting += [getattr(config, name, None) for name in getattr(config, "sub_configs", ())]
    return list(found.values())


def _check(model: Any, tokenizer: Any) -> None:
    if not isinstance(model, nn.Module) or not hasattr(getattr(model, "config", None), "get_text_config"):
        raise InvalidValueError(
            f"model: a {type(model).__name__} given, a model's name, a folder, a .gguf file or a model of "
            "transformers needed"
        )
    if tokenizer is None:
        raise InvalidValueError(
            "tokenizer: none given, a model in memory needs one: tokenizer=AutoTokenizer.from_pretrained(…)"
        )
    if any(weight.is_meta for weight in model.parameters()):
        raise ModelError(
            f"model: weights of {name_of(model)} are not in memory (moved to disk or to another device); load it "
            "by name with device_map instead"
        )
