"""The lazy import hook. PyTorch calls `install()` at the end of every `import torch` (entry point `torch.backends`).

Nothing of LlamaFactory is imported or touched here: a finder waits in `sys.meta_path` until one of the modules below is
imported, lets it load as it is, and then hands it to `plugin/patches.py`. All of them are imported after torch in every
launch path (a torchrun worker imports `llamafactory.train.tuner` *before* torch, so that one cannot be hooked).
"""

import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

#: module of LlamaFactory -> function of `plugin/patches.py` that receives it right after it was executed
HOOKED = {
    "llamafactory.hparams.parser": "patch_parser",
    "llamafactory.launcher": "patch_launcher",
    "llamafactory.v1.launcher": "patch_v1_launcher",
    **{
        f"llamafactory.train.{stage}.workflow": "patch_workflow"
        for stage in ("pt", "sft", "rm", "dpo", "kto", "ppo", "hyper_parallel", "mca")
    },
}


class _PatchingLoader(Loader):
    """Runs the module's own loader, then the patch. A failing patch leaves LlamaFactory as it is and says so."""

    def __init__(self, loader: Loader, patch: str):
        self._loader = loader
        self._patch = patch

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module) -> None:
        self._loader.exec_module(module)
        try:
            from . import patches

            getattr(patches, self._patch)(module)
        except Exception as error:
            print(f"llamafactory-obs: could not attach to {module.__name__}: {error!r}", file=sys.stderr)

    def __getattr__(self, name: str):  # get_source, get_data ...: whatever else the real loader offers
        return getattr(self._loader, name)


class _Finder(MetaPathFinder):
    """Answers for the hooked modules only, once per module and process."""

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        if fullname not in HOOKED:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _PatchingLoader(spec.loader, HOOKED[fullname])
                return spec
        return None


def is_live() -> bool:
    """Is the import hook in place in this process?"""
    return any(type(finder).__name__ == "_Finder" and type(finder).__module__ == __name__ for finder in sys.meta_path)


def switched_off() -> bool:
    """Does `LLAMAFACTORY_OBS_AUTOLOAD` switch the automatic loading off?"""
    return os.environ.get("LLAMAFACTORY_OBS_AUTOLOAD", "1").strip().lower() in ("0", "false", "off", "no")


def install(force: bool = False) -> None:
    """Put the import hook in place; `force` is the explicit way, whatever `LLAMAFACTORY_OBS_AUTOLOAD` says."""
    if (force or not switched_off()) and not is_live():
        sys.meta_path.insert(0, _Finder())
