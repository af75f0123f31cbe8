"""Values that are found when they are first asked for.

An explanation has phrases and strengths for every class of a model, and a reader looks
at those of a few. So a value of it is made, from the arrays that a batch left, when it
is first read, and then kept. To its reader it is a plain value: it compares, copies,
pickles and prints as one with all its fields given.
"""

from typing import TYPE_CHECKING, Any, Self

__all__ = ["Deferred"]


class Deferred:
    """The base of a frozen dataclass with slots whose fields may come later."""

    __slots__ = ("_source",)

    @classmethod
    def later(cls, source: Any, **known: Any) -> Self:
        """Return a value with some fields known.

        Args:
            source: has a method for each of the others, called at most once.
            known: fields and their values.
        """
        value = cls.__new__(cls)
        for name, found in known.items():
            object.__setattr__(value, name, found)
        object.__setattr__(value, "_source", source)
        return value

    if not TYPE_CHECKING:  # a type checker would take any name for a field's

        def __getattr__(self, name: str) -> Any:
            """Find a field; Python calls this where its slot is still empty."""
            if name not in self.__dataclass_fields__:
                kind = type(self).__name__
                raise AttributeError(f"{kind!r} object has no attribute {name!r}")
            found = getattr(self._source, name)()
            object.__setattr__(self, name, found)
            return found
