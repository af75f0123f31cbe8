"""The few exceptions a caller may catch.

Every message has one form: ``<name> must be <expected>; got <value>. <what to do>``.
The command line prints such a message on one line and exits with 2; anything that is
not a `TextCapsulesError` is a fault of ours and keeps its traceback.
"""


class TextCapsulesError(Exception):
    """Something the caller can put right: the base of all errors below."""


class ConfigError(TextCapsulesError, ValueError):
    """An option, or a combination of options, that cannot work."""


class DataError(TextCapsulesError):
    """A file or table of texts that cannot be read as asked."""


class InputError(DataError, ValueError):
    """Texts handed over in Python that are not a list of strings."""


class CorpusError(DataError):
    """A benchmark corpus that is missing, damaged or not what its catalogue says."""


class DownloadError(TextCapsulesError):
    """A download that did not arrive, or arrived damaged."""


class ModelFolderError(TextCapsulesError):
    """A model or run folder that is missing, damaged, foreign, or in the way."""


class WriteError(TextCapsulesError):
    """A file that could not be written, as on a full disk."""
