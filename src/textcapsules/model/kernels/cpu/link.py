"""How the functions of the CPU kernels become one kernel: linked first, optimised once.

Numba optimises every function by itself, turns it into machine code, and does both
again inside each of its callers. Only a kernel is ever called from outside. So a
function below it is simplified by itself and no more; the kernel links all of them, and
LLVM optimises the whole and writes machine code once. Both kernels then take half the
time to compile, and run as fast.
"""

from typing import Any

from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import (
    FixupArgs,
    IRProcessing,
    ReconstructSSA,
    TranslateByteCode,
)

__all__ = ["KernelCompiler", "compiled", "merged"]


class Part(JITCodeLibrary):
    """The plain code of one function, of which kernels link copies."""

    def add_ir_module(self, ir_module: Any) -> None:
        """Take a function's code; only those that are `merged` may lose their calls."""
        for function in ir_module.functions:
            if function.blocks and "alwaysinline" not in function.attributes:
                function.attributes.add("noinline")
        super().add_ir_module(ir_module)

    def finalize(self) -> None:
        """Do nothing: the kernel links what this function calls."""
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: nobody can call it."""
        return 0

    @property
    def codegen(self) -> Any:
        """Return what numba asks to `set_env`: here, where there is no code yet."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        """Do nothing: only code that raises errors would read it."""


class Whole(JITCodeLibrary):
    """A kernel with all functions that it calls, directly or not."""

    def finalize(self) -> None:
        """Link every function once, then optimise."""
        every: dict[Any, None] = {}
        left = list(self._linking_libraries)
        while left:
            library = left.pop()
            if library not in every:
                every[library] = None
                if isinstance(library, Part):  # others hold what they call
                    left += library._linking_libraries
        self._linking_libraries = list(every)
        super().finalize()


class PartCompiler(Compiler):
    """Numba's compiler, for a function below a kernel."""

    library: Any = Part

    def __init__(self, typingctx, targetctx, library, *arguments) -> None:
        library = self.library(targetctx.codegen(), "routing")
        library.enable_object_caching()
        super().__init__(typingctx, targetctx, library, *arguments)

    def define_pipelines(self) -> list[PassManager]:
        """Return numba's passes, less those for features the kernels do not use."""
        manager = PassManager("routing")
        for step in (
            TranslateByteCode,
            FixupArgs,
            IRProcessing,
            ReconstructSSA,
            NopythonTypeInference,
            PreLowerStripPhis,
            IRLegalization,
            AnnotateTypes,
            NativeLowering,
            NoPythonBackend,
        ):
            manager.add_pass(step, step.__name__)
        manager.finalize()
        return [manager]


class KernelCompiler(PartCompiler):
    """Numba's compiler, for a kernel."""

    library = Whole


# Only compiled code calls these: they need no wrappers for Python.
options: Any = {
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "error_model": "numpy",
    "pipeline_class": PartCompiler,
}
# Said, because a function otherwise takes over the option of its caller.
compiled = njit(forceinline=False, **options)
# For small functions, and those with one caller.
merged = njit(forceinline=True, **options)
